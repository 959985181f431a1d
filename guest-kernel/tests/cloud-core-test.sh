#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# cloud-core.pl on small trees: what it must not mind, and what it must find.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failures=0

# 600 options of the core, one of a driver, and their configuration.
cd "$work"
for directory in arch/x86 block init kernel mm security virt drivers/{acpi,base,clocksource,dax,iommu,pci,virtio,xen}; do
	mkdir -p "source/$directory"
done
for number in $(seq 600); do
	printf 'config CORE_%d\n\tbool "one"\n' "$number" >>source/mm/Kconfig
	echo "CONFIG_CORE_$number=y" >>debian
done
mkdir source/drivers/hid
printf 'config DRIVER\n\ttristate "a driver"\n' >source/drivers/hid/Kconfig
printf '\tmenuconfig SERIES\n\tbool "of the series"\nconfig CC_KNOWS\n\tbool\n' >source/kernel/Kconfig
echo CONFIG_DRIVER=m >>debian

# Compares the configuration that "sed $2" makes of Debian's, with fragment text $3; expects exit status $1.
expect() {
	local rc=0
	sed "$2" debian >result
	echo "$3" >fragment
	perl "$here/../cloud-core.pl" source debian result fragment >said 2>&1 || rc=$?
	[ "$rc" -eq "$1" ] || {
		echo "sed '$2', fragment '$3': exit status $rc, expected $1: $(cat said)" >&2
		failures=$((failures + 1))
	}
}

expect 0 '' ''
expect 0 's/CONFIG_DRIVER=m/# CONFIG_DRIVER is not set/' ''
expect 0 '$ aCONFIG_CC_KNOWS=y' ''
expect 0 '$ aCONFIG_SERIES=y' 'CONFIG_SERIES=y'
expect 1 '$ aCONFIG_SERIES=y' ''
expect 1 's/CONFIG_CORE_77=y/# CONFIG_CORE_77 is not set/' ''
expect 1 '/CONFIG_CORE_77=y/d' ''
expect 1 's/CONFIG_CORE_77=y/CONFIG_CORE_77=m/' ''
expect 0 's/CONFIG_CORE_77=y/# CONFIG_CORE_77 is not set/' 'CONFIG_CORE_77=n'
# Too few to be Debian's.
sed -i '200,$d' debian
expect 2 '' ''
rm debian
touch debian.gone
perl "$here/../cloud-core.pl" source debian result fragment >said 2>&1 && failures=$((failures + 1))

[ "$failures" -eq 0 ] || exit 1
echo "cloud-core-test: 11 comparisons are as expected"
