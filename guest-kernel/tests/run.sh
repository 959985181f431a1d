#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Compiles files of the series for user space, with sanitizers, and runs their tests.
# PATCHED_SRC=DIR: takes them from a Linux tree that has the series, while it is worked on.
set -euo pipefail
# For !(0000-*).patch: the patches of a folder without its cover letter.
shopt -s extglob nullglob

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in git gcc; do
	command -v "$tool" >/dev/null || {
		echo "guest-kernel/tests/run.sh: $tool is not installed: apt-get install $tool" >&2
		exit 1
	}
done
# Not in /tmp, where programs may not be allowed to run.
mkdir -p "$here/../../target"
work=$(mktemp -d -p "$here/../../target")
trap 'rm -rf -- "$work"' EXIT
cd "$work"

# The patches create these files, so no kernel source is needed to have them.
take_from_patches() {
	local series patch
	for series; do
		for patch in "$here/../patches/$series"/!(0000-*).patch; do
			git apply --include='mm/memmap_*.[ch]' --include='include/linux/memmap_*.h' \
				--include='include/uapi/linux/memmap_*.h' "$patch"
		done
	done
}

take_from_tree() {
	[ -f "$1/mm/memmap_fill.c" ] || {
		echo "guest-kernel/tests/run.sh: PATCHED_SRC=$1 is not a Linux tree with the series: it has no mm/memmap_fill.c" >&2
		exit 1
	}
	mkdir -p mm include/linux include/uapi/linux
	cp "$1"/mm/memmap_*.[ch] mm
	cp "$1"/include/linux/memmap_*.h include/linux
	cp "$1"/include/uapi/linux/memmap_*.h include/uapi/linux
}

# Every other kernel header that they ask for is the one file of stubs.
make_stubs() {
	rm -rf stubs
	mkdir stubs
	echo '#include "kernel_stubs.h"' >stubs/internal.h
	grep -ho '^#include <[a-z0-9_/]*\.h>' mm/*.[ch] include/linux/*.h | sed 's/.*<\(.*\)>/\1/' | sort -u |
		while read -r header; do
			[ ! -f "include/$header" ] || continue
			mkdir -p "stubs/${header%/*}"
			echo '#include "kernel_stubs.h"' >"stubs/$header"
		done
}

# run_test NAME SANITIZERS
run_test() {
	# DEBUG_FS stays undefined: showing things needs more of the kernel than doing them.
	gcc -std=gnu11 -g -O1 -Wall -Wno-format -fsanitize="$2" -fno-sanitize-recover=all -pthread \
		-DCONFIG_MEMMAP_HANDOFF -DCONFIG_DEFERRED_STRUCT_PAGE_INIT \
		-Istubs -I"$here/stubs" -Iinclude -Imm -o "$1" "$here/$1.c"
	"./$1"
}

# Not every system has its library, or an address space layout that it can use.
has_thread_sanitizer() {
	echo 'int main(void) { return 0; }' >probe.c
	gcc -fsanitize=thread -o probe probe.c 2>/dev/null && ./probe 2>/dev/null
}

# run_tests WHAT: of the files as they are now.
run_tests() {
	echo "$1:"
	make_stubs
	run_test handoff_test address,undefined
	run_test regions_test address,undefined
	run_test fill_test "$fill_sanitizers"
}

fill_sanitizers=thread,undefined
if ! has_thread_sanitizer; then
	echo "guest-kernel/tests/run.sh: gcc's thread sanitizer does not work here: fill_test runs without" >&2
	fill_sanitizers=address,undefined
fi
if [ -n "${PATCHED_SRC:-}" ]; then
	take_from_tree "$PATCHED_SRC"
	run_tests "$PATCHED_SRC"
else
	# The first series works without those that come after it.
	git init -q .
	take_from_patches boot
	run_tests 'after boot'
	take_from_patches hash elastic run fixes
	run_tests 'after all'
fi
