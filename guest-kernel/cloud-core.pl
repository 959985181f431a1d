#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
#
# cloud-core.pl SOURCE DEBIAN RESULT FRAGMENT...: whether each core option of the configuration RESULT is as DEBIAN has it.
#
# SOURCE is the kernel's tree. An option is of the core if a Kconfig file of a core directory says it; memory, processors,
# security, hot-plug, jump labels and address space randomization are all there. Only what a FRAGMENT asks for may differ, what
# the tools that compile it say of themselves, and what DEBIAN does not know because the series adds it.
#
# Exit status: 0 all alike, 1 an option differs, and each is printed; 2 a file cannot be read.
use strict;
use warnings;
use File::Find;

my @core = qw(arch/x86 block init kernel mm security virt
	drivers/acpi drivers/base drivers/clocksource drivers/dax drivers/iommu drivers/pci drivers/virtio drivers/xen);
# Of the compiler, the linker and the like, and of one build alone.
my $tools = qr/^(?:(?:CC|GCC|LD|AS|CLANG|LLD|RUSTC|PAHOLE|BINDGEN|TOOLS|HAVE_RUST)_|BUILD_SALT$)/;

sub unusable { print STDERR "cloud-core.pl: @_\n"; exit 2 }

# The options that a configuration sets, with n for those that it says are not set.
sub read_config {
	my ($path) = @_;
	open(my $in, '<', $path) or unusable("$path: $!");
	my %value;
	while (<$in>) {
		$value{$1} = $2 if /^CONFIG_(\w+)=(.*)$/;
		$value{$1} = 'n' if /^# CONFIG_(\w+) is not set$/;
	}
	return \%value;
}

# The options that the Kconfig files below a directory say.
sub options_below {
	my ($source, $directory) = @_;
	-d "$source/$directory" or unusable("$source/$directory: not a directory");
	my %found;
	my $note = sub {
		return unless /^Kconfig/ && -f;
		open(my $in, '<', $_) or unusable("$File::Find::name: $!");
		while (<$in>) { $found{$1} = 1 if /^\s*(?:menu)?config\s+(\w+)/ }
	};
	find($note, "$source/$directory");
	return keys %found;
}

@ARGV >= 3 or unusable('usage: cloud-core.pl SOURCE DEBIAN RESULT FRAGMENT...');
my ($source, $debian_path, $result_path, @fragments) = @ARGV;
my ($debian, $result) = map { read_config($_) } $debian_path, $result_path;
my %asked = map { %{ read_config($_) } } @fragments;
my %options = map { $_ => 1 } map { options_below($source, $_) } @core;
my ($compared, $differ) = (0, 0);
for my $option (sort keys %options) {
	next if $asked{$option} || $option =~ $tools;
	my ($want, $got) = map { $_->{$option} // 'n' } $debian, $result;
	$compared++ if exists $debian->{$option};
	next if $want eq $got;
	print "CONFIG_$option: Debian has $want, this configuration has $got\n";
	$differ++;
}
# A comparison of nothing would find nothing.
$compared > 500 or unusable("only $compared core options in $debian_path: is it Debian's configuration?");
print "$compared core options are as Debian has them\n" unless $differ;
exit($differ ? 1 : 0);
