#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Compiles files of the series for user space, with sanitizers, and runs their tests.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in git gcc; do
	command -v "$tool" >/dev/null || {
		echo "guest-kernel/tests/run.sh: $tool is not installed: apt-get install $tool" >&2
		exit 1
	}
done
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# The patches create these files, so no kernel source is needed to have them.
cd "$work"
git init -q .
for patch in "$here"/../patches/000[1-9]-*.patch; do
	git apply --include='mm/memmap_*.[ch]' --include='include/linux/memmap_handoff*.h' "$patch"
done

# Every kernel header that they ask for is the one file of stubs.
grep -ho '^#include <[a-z]*/[a-z0-9_]*\.h>' mm/*.[ch] include/linux/*.h | sed 's/.*<\(.*\)>/\1/' |
	grep -v 'linux/memmap_handoff' | sort -u | while read -r header; do
	mkdir -p "stubs/${header%/*}"
	echo '#include "kernel_stubs.h"' >"stubs/$header"
done

# DEBUG_FS stays undefined: showing things needs more of the kernel than doing them.
for test in handoff_test regions_test; do
	gcc -std=gnu11 -g -O1 -Wall -Wno-format -fsanitize=address,undefined -fno-sanitize-recover=all \
		-DCONFIG_MEMMAP_HANDOFF -Istubs -I"$here/stubs" -Iinclude -Imm -o "$test" "$here/$test.c"
	"./$test"
done
