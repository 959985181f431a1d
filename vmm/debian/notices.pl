#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# Prints who has written what is linked into flatboot and flatboot-bench, under which licences, and the texts of these. Reads
# what cargo metadata says of the workspace (JSON) on standard input. Every text comes once.
use strict;
use warnings;
use JSON::PP;

binmode STDOUT, ':encoding(UTF-8)';

my $metadata = decode_json(do { local $/; <STDIN> });
my %package = map { $_->{id} => $_ } @{ $metadata->{packages} };
my %node = map { $_->{id} => $_ } @{ $metadata->{resolve}{nodes} };

# What runs in the compiler is not linked.
sub is_macro { return grep { $_ eq 'proc-macro' } map { @{ $_->{kind} } } @{ $_[0]{targets} } }

my @todo = grep { $package{$_}{name} =~ /^flatboot(-bench)?$/ } @{ $metadata->{workspace_members} };
my %linked;
while (defined(my $id = pop @todo)) {
	next if is_macro($package{$id}) || $linked{$id}++;
	for my $dep (@{ $node{$id}{deps} }) {
		push @todo, $dep->{pkg} if grep { !defined $_->{kind} } @{ $dep->{dep_kinds} };
	}
}
my %own = map { $_ => 1 } @{ $metadata->{workspace_members} };
my @crates = sort { "$a->{name} $a->{version}" cmp "$b->{name} $b->{version}" }
	grep { !$own{ $_->{id} } } map { $package{$_} } keys %linked;

# The licences of a crate, files in its directory: name to text.
sub texts {
	my ($dir) = $_[0]{manifest_path} =~ m{^(.*)/};
	my %texts;
	for my $file (glob "'$dir'/*") {
		next unless -f $file && $file =~ m{/(?:[^/]*(?:licen[cs]e|copying|copyright|notice)[^/]*)$}i;
		open my $in, '<:encoding(UTF-8)', $file or die "$file: $!\n";
		$texts{ $file =~ s{.*/}{}r } = do { local $/; <$in> };
	}
	return %texts;
}

my (%number, @all);
print "What is linked into flatboot and flatboot-bench, beside their own code, the standard library of Rust\n",
	"(MIT OR Apache-2.0, The Rust Project Developers) and the GNU C Library. The texts of licences follow.\n\n";
for my $crate (@crates) {
	my %texts = texts($crate);
	my @numbers;
	for my $name (sort keys %texts) {
		my $text = $texts{$name};
		push @all, $text unless $number{$text};
		$number{$text} ||= @all;
		push @numbers, "[$number{$text}]";
	}
	printf "%s %s: %s %s\n", $crate->{name}, $crate->{version},
		$crate->{license} // die("$crate->{name}: names no licence\n"), "@numbers";
	print "    by ", join(', ', @{ $crate->{authors} }), "\n" if @{ $crate->{authors} };
}
print "\n", '-' x 72, "\n[", $_ + 1, "]\n\n$all[$_]" for 0 .. $#all;
