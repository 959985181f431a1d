#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Compiles the series' own mm/memmap_handoff.c for user space, with sanitizers, and runs its test.
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

# The patch creates these files, so no kernel source is needed to have them.
cd "$work"
git apply --include='mm/memmap_handoff.c' --include='include/linux/memmap_handoff*.h' \
	"$here"/../patches/0002-*.patch

# Every kernel header that the file asks for is the one file of stubs.
grep -ho '^#include <[a-z]*/[a-z0-9_]*\.h>' mm/memmap_handoff.c include/linux/*.h | sed 's/.*<\(.*\)>/\1/' |
	grep -v 'linux/memmap_handoff' | sort -u | while read -r header; do
	mkdir -p "stubs/${header%/*}"
	echo '#include "kernel_stubs.h"' >"stubs/$header"
done

# DEBUG_FS stays undefined: showing the table needs more of the kernel than reading it.
gcc -std=gnu11 -g -O1 -Wall -Wno-format -fsanitize=address,undefined -fno-sanitize-recover=all \
	-DCONFIG_MEMMAP_HANDOFF -Istubs -I"$here/stubs" -Iinclude -Imm -o handoff_test "$here/handoff_test.c"
./handoff_test
