#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
#
# fast-path.pl STOCK.o SERIES.o: whether the page allocator's fast paths are the same code in both objects.
#
# What is compared is what is executed once memory is filled: every function of @paths is walked from its entry, in the
# order in which it runs, with each static branch of the series off. So the out-of-line code behind such a branch does not
# count, nor do the no-op that the branch has become, padding, and where the compiler has put a block; an instruction more
# or less, another register, another offset does. All other static branches are walked both ways. Where only the conditions
# of an && are tested in another order, as the compiler likes, that is said.
#
# Exit status: 0 the same, 1 something differs, 2 the objects cannot be read.
use strict;
use warnings;
use File::Temp qw(tempfile);

# The fast paths; a name that neither object has was inlined into its callers, in both.
my @paths = qw(
	get_page_from_freelist __alloc_pages_noprof alloc_pages_bulk_noprof prepare_alloc_pages
	rmqueue rmqueue_buddy rmqueue_pcplist __rmqueue_pcplist rmqueue_bulk __rmqueue __rmqueue_smallest
	__zone_watermark_ok zone_watermark_fast zone_watermark_ok decay_pcp_high nr_pcp_alloc
	free_unref_page free_unref_page_commit free_unref_folios free_pcppages_bulk nr_pcp_high nr_pcp_free
	__free_pages free_pages __free_pages_ok free_one_page __free_one_page free_pages_prepare
);
# Those that callers outside of the file have: they are there, whatever the compiler does.
my @needed = qw(get_page_from_freelist __alloc_pages_noprof alloc_pages_bulk_noprof free_unref_page free_unref_folios
	__free_pages);
# The static branch that upstream has for memory which is not filled yet. One that the series adds is off as well.
my @off = qw(deferred_pages);

sub unusable { print STDERR "fast-path.pl: @_\n"; exit 2 }

sub lines {
	my @command = @_;
	open(my $out, '-|', @command) or unusable("$command[0]: $!");
	my @lines = <$out>;
	close($out) or unusable("@command: failed");
	chomp @lines;
	return @lines;
}

# A static function's number, and that of a variable inside a function, change with anything before it in the file.
sub plain { my ($name) = @_; $name =~ s/\.\d+//g; return $name }

# Symbols, instructions and static branches of an object.
sub load {
	my ($path) = @_;
	-r $path or unusable("$path: cannot be read");
	my %object = (path => $path, symbols => {}, code => {}, functions => {}, branches => {});
	for (lines('objdump', '-t', $path)) {
		# Address, seven flags, section, size, name.
		my ($at, $flags, $section, $size, $name) = /^([0-9a-f]{16}) (.{7}) (\S+)\t([0-9a-f]+)\s+(?:\.hidden )?(\S+)$/ or next;
		next if $section eq '*UND*' || $section eq $name;
		my $symbol = { name => $name, section => $section, at => hex $at, size => hex $size };
		push @{ $object{symbols}{$section} }, $symbol;
		$object{functions}{$name} = $symbol if $flags =~ /F/;
	}
	instructions(\%object);
	branches(\%object);
	return \%object;
}

sub instructions {
	my ($object) = @_;
	my ($section, $last);
	for (lines('objdump', '-dr', '--no-show-raw-insn', $object->{path})) {
		if (/^Disassembly of section (\S+):$/) {
			($section, $last) = ($1, undef);
		} elsif (/^\s+([0-9a-f]+):\s(R_X86_64_\w+)\t(\S+)$/) {
			push @{ $last->{relocations} }, { at => hex $1, type => $2, to => $3 } if $last;
		} elsif (/^\s*([0-9a-f]+):\t(.*?)\s*$/) {
			my ($at, $text) = (hex $1, $2);
			$text =~ s/\s+#.*//;
			$last->{next} = $at if $last;
			$last = { at => $at, section => $section, text => $text, relocations => [] };
			$object->{code}{$section}{$at} = $last;
		}
	}
}

# The symbol that has byte $offset of $section, and how far into it that is.
sub symbol_at {
	my ($object, $section, $offset) = @_;
	for my $symbol (@{ $object->{symbols}{$section} || [] }) {
		return ($symbol, $offset - $symbol->{at})
			if $offset == $symbol->{at} || ($offset > $symbol->{at} && $offset < $symbol->{at} + $symbol->{size});
	}
	return;
}

# "symbol+0x12" as a symbol or section and a number.
sub split_target {
	my ($to) = @_;
	my ($name, $sign, $number) = $to =~ /^(.*?)(?:([+-])0x([0-9a-f]+))?$/;
	my $offset = defined $number ? hex $number : 0;
	return ($name, defined $sign && $sign eq '-' ? -$offset : $offset);
}

# Section and offset of what a relocation means, if it is in this object.
sub place {
	my ($object, $to, $adjust) = @_;
	my ($name, $offset) = split_target($to);
	return ($name, $offset + $adjust) if $object->{symbols}{$name} || $object->{code}{$name} || $name =~ /^\.(?:text|init\.text|data|bss|rodata)/;
	for my $symbols (values %{ $object->{symbols} }) {
		for my $symbol (@$symbols) {
			return ($symbol->{section}, $symbol->{at} + $offset + $adjust) if $symbol->{name} eq $name;
		}
	}
	return;
}

# __jump_table: an entry has the branch, its target and its key (include/linux/jump_label.h); the key's lowest bit says that
# the instruction jumps while the key is off.
sub branches {
	my ($object) = @_;
	my @entries;
	# There is none where no function has a static branch.
	return if !grep { / __jump_table / } lines('objdump', '-h', $object->{path});
	for (lines('objdump', '-r', '-j', '__jump_table', $object->{path})) {
		my ($at, $to) = /^([0-9a-f]{16}) R_X86_64_PC(?:32|64)\s+(\S+)/ or next;
		push @entries, [ hex $at, $to ];
	}
	@entries % 3 == 0 or unusable("$object->{path}: __jump_table has no whole entries");
	while (my ($code, $target, $key) = splice @entries, 0, 3) {
		my ($section, $offset) = place($object, $code->[1], 0) or unusable("$object->{path}: a branch is nowhere");
		my ($to_section, $to_offset) = place($object, $target->[1], 0) or unusable("$object->{path}: a branch goes nowhere");
		my ($name, $addend) = split_target($key->[1]);
		if ($object->{symbols}{$name}) {
			my ($symbol, $inside) = symbol_at($object, $name, $addend & ~3);
			$name = $symbol ? $symbol->{name} . ($inside ? "+$inside" : '') : "$name+" . ($addend & ~3);
		}
		$object->{branches}{$section}{$offset} =
			{ key => plain($name), jumps_if_off => $addend & 1, section => $to_section, at => $to_offset };
	}
}

# Where a jump or call goes: a place in this object, or a name.
sub goal {
	my ($object, $insn) = @_;
	if (my ($relocation) = @{ $insn->{relocations} }) {
		my @place = place($object, $relocation->{to}, 4);
		return @place ? { section => $place[0], at => $place[1] } : { name => (split_target($relocation->{to}))[0] };
	}
	return { section => $insn->{section}, at => hex $1 } if $insn->{text} =~ /\s([0-9a-f]+)(?: <|$)/;
	return;
}

# The function itself and what the compiler has split off it.
sub belongs {
	my ($object, $function, $goal) = @_;
	return 0 if !defined $goal->{at};
	my ($symbol) = symbol_at($object, $goal->{section}, $goal->{at}) or return 0;
	return $symbol->{name} eq $function || $symbol->{name} =~ /^\Q$function\E\.cold(?:\.\d+)?$/;
}

sub called {
	my ($object, $goal) = @_;
	return plain($goal->{name}) if defined $goal->{name};
	my ($symbol, $inside) = symbol_at($object, $goal->{section}, $goal->{at});
	return $symbol ? plain($symbol->{name}) . ($inside ? "+$inside" : '') : $goal->{section};
}

# The instruction's text with names in the place of numbers that the linker fills in.
sub text {
	my ($object, $insn, $goal) = @_;
	my $text = $insn->{text};
	return $text =~ s/\s.*//r . ' ' . called($object, $goal) if $goal;
	for my $relocation (@{ $insn->{relocations} }) {
		my $relative = $relocation->{type} =~ /PC|PLT|GOT/;
		my $adjust = $relative && defined $insn->{next} ? $insn->{next} - $relocation->{at} : 0;
		my ($name, $addend) = split_target($relocation->{to});
		my @place = place($object, $relocation->{to}, $adjust);
		my ($symbol, $inside) = @place ? symbol_at($object, @place) : ();
		if ($symbol) {
			$name = plain($symbol->{name}) . ($inside ? "+$inside" : '');
		} elsif (!@place) {
			$name .= $addend + $adjust ? '+' . ($addend + $adjust) : '';
		}
		# Else a string, say: where in its section it is depends on all others.
		$text .= " {$name}";
	}
	return $text;
}

sub insn_at {
	my ($object, $section, $at) = @_;
	return $object->{code}{$section}{$at} || unusable(sprintf '%s: no instruction at %s+0x%x', $object->{path}, $section, $at);
}

# The first instruction at or after a place that does something: no-ops and jumps inside of the function only lead on.
sub first {
	my ($object, $function, $section, $at, $off) = @_;
	for (1 .. 1000) {
		my $insn = insn_at($object, $section, $at);
		my $branch = $object->{branches}{$section}{$at};
		my $goal;
		if ($branch) {
			return $insn if !$off->{ $branch->{key} };
			$goal = $branch if $branch->{jumps_if_off};
		} elsif ($insn->{text} =~ /^jmp\s+[^*]/) {
			$goal = goal($object, $insn);
			return $insn if !$goal || !belongs($object, $function, $goal);
		} elsif ($insn->{text} !~ /^(?:nop|data16|cs nop|xchg\s+%ax,%ax)/) {
			return $insn;
		}
		($section, $at) = $goal ? ($goal->{section}, $goal->{at}) : ($section, $insn->{next});
		defined $at or unusable("$object->{path}: $function: runs off its end");
	}
	unusable("$object->{path}: $function: jumps in a circle");
}

# All that $function executes, as lines.
sub walk {
	my ($object, $function, $off) = @_;
	my $start = $object->{functions}{$function};
	my (@order, %seen, %label);
	my $id = sub { "$_[0]{section}:$_[0]{at}" };
	my @pending = (first($object, $function, $start->{section}, $start->{at}, $off));
	while (my $insn = shift @pending) {
		while ($insn) {
			if ($seen{ $id->($insn) }++) {
				push @order, [ undef, "goto", $id->($insn) ];
				last;
			}
			my $branch = $object->{branches}{ $insn->{section} }{ $insn->{at} };
			my ($goal, $target, $ends) = (undef, undef, 0);
			if ($branch) {
				$target = first($object, $function, $branch->{section}, $branch->{at}, $off);
			} elsif ($insn->{text} =~ /^(?:bnd )?j\w+\s+\*/) {
				unusable("$object->{path}: $function: an indirect jump cannot be followed: $insn->{text}");
			} elsif ($insn->{text} =~ /^(j\w+|call)\s+[^*]/) {
				$goal = goal($object, $insn);
				$ends = $1 eq 'jmp';
				if ($goal && $1 ne 'call' && belongs($object, $function, $goal)) {
					$target = first($object, $function, $goal->{section}, $goal->{at}, $off);
				}
			}
			$ends ||= $insn->{text} =~ /^(?:ret|retq|int3|ud2)\b/;
			my $words = $branch ? "static branch on $branch->{key}" . ($branch->{jumps_if_off} ? ', inverted' : '')
				: $target ? $insn->{text} =~ s/\s.*//r
				: text($object, $insn, $goal);
			push @order, [ $id->($insn), $words, $target ? $id->($target) : undef ];
			push @pending, $target if $target;
			# What stands after a BUG() is never reached, what stands after a WARN() is: the next instruction belongs to the
			# function in both cases, unless it was its last.
			my $next = $insn->{next};
			$ends = !belongs($object, $function, { section => $insn->{section}, at => $next })
				if $insn->{text} =~ /^ud2/ && defined $next;
			$insn = $ends ? undef : first($object, $function, $insn->{section}, $next, $off);
		}
	}
	my $count = 0;
	for my $line (@order) { $label{ $line->[2] } = 1 if defined $line->[2] }
	for my $line (@order) {
		$label{ $line->[0] } = sprintf 'L%d', ++$count if defined $line->[0] && $label{ $line->[0] };
	}
	return map {
		my ($at, $words, $to) = @$_;
		(defined $at && $label{$at} ? "$label{$at}:\n" : '') . "\t$words" . (defined $to ? " $label{$to}" : '') . "\n"
	} @order;
}

# The same with the conditions of each && in one order: of a run of instructions that nothing leads into, and that leads out
# to one place only, those up to its last jump are sorted. A call and, after the first jump, a store end it.
sub sorted {
	my (@out, @run, $to);
	my ($jumps, $last) = (0, -1);
	my $flush = sub {
		push @out, $jumps > 1 ? sort @run[0 .. $last] : @run[0 .. $last];
		push @out, @run[$last + 1 .. $#run];
		@run = ();
		($to, $jumps, $last) = (undef, 0, -1);
	};
	for my $line (map { split /(?<=\n)/ } @_) {
		if ($line =~ /^L\d+:$/) {
			$flush->();
			push @out, $line;
			next;
		}
		my ($goal) = $line =~ /^\tj\w+ (L\d+)$/;
		my $stores = $line !~ /^\t(?:cmp|test|j)/ && $line =~ /(?:^|[ ,])[^ ,]*\([^()]*\)(?: \{.*\})?$/;
		my $ends = $line =~ /^\t(?:call|ret|goto|static|ud2|jmp)/;
		$flush->() if ($jumps && $stores) || (defined $goal && defined $to && $goal ne $to);
		push @run, $line;
		if (defined $goal) {
			($to, $last) = ($goal, $#run);
			$jumps++;
		}
		$flush->() if $ends;
	}
	$flush->();
	return @out;
}

# The functions of that name, as the compiler has specialised them.
sub variants {
	my ($object, $name) = @_;
	my @names = sort grep { /^\Q$name\E(?:\.(?:isra|constprop|part)\.\d+)*$/ } keys %{ $object->{functions} };
	return @names;
}

sub differ {
	my ($name, $before, $after) = @_;
	my @files = map {
		my ($handle, $path) = tempfile(UNLINK => 1);
		print $handle @$_;
		close $handle;
		$path
	} $before, $after;
	open(my $diff, '-|', 'diff', '-U', '4', '--label', "$name, stock", '--label', "$name, series", @files) or unusable("diff: $!");
	print while <$diff>;
	close $diff;
}

@ARGV == 2 or unusable('usage: fast-path.pl STOCK.o SERIES.o');
my ($stock, $series) = map { load($_) } @ARGV;
my $keys = sub {
	my ($object) = @_;
	return map { $_->{key} => 1 } map { values %$_ } values %{ $object->{branches} };
};
my (%of_stock, %of_series) = ();
%of_stock = $keys->($stock);
%of_series = $keys->($series);
my %off = map { $_ => 1 } @off, grep { !$of_stock{$_} } keys %of_series;
for my $name (@needed) {
	for my $object ($stock, $series) {
		variants($object, $name) or unusable("$object->{path}: has no $name; is it mm/page_alloc.o?");
	}
}
my ($same, @different) = (0);
for my $name (@paths) {
	my @stock = variants($stock, $name);
	my @series = variants($series, $name);
	if (join(' ', map { plain($_) } @stock) ne join(' ', map { plain($_) } @series)) {
		print "$name: out of line as (@stock) in stock, as (@series) with the series\n";
		push @different, $name;
		next;
	}
	for my $index (0 .. $#stock) {
		my @before = walk($stock, $stock[$index], \%off);
		my @after = walk($series, $series[$index], \%off);
		my $is_same = join('', @before) eq join('', @after);
		if ($is_same || join('', sorted(@before)) eq join('', sorted(@after))) {
			my $but = $is_same ? '' : '; conditions of an && in another order';
			printf "same      %s, %d instructions%s\n", $stock[$index], scalar(grep { !/^\tgoto/ } @before), $but;
			$same++;
		} else {
			print "DIFFERENT $stock[$index]\n";
			differ($stock[$index], \@before, \@after);
			push @different, $stock[$index];
		}
	}
}
my $taken = join(', ', sort grep { $of_series{$_} } keys %off) || 'none';
print "static branches taken as off: $taken\n";
print @different ? 'fast paths that differ: ' . join(', ', @different) . "\n" : "$same fast paths, all the same\n";
exit(@different ? 1 : 0);
