#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Looks in the machine code of a switch between tasks for a counter of those who use an address space.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
functions='^(__schedule|finish_task_switch|switch_mm_irqs_off|enter_lazy_tlb)(\.|$)'

usage() {
	cat <<EOT
Usage: guest-kernel/check-switch-path.sh

Builds the kernels "guest" and "stock" if need be, and looks for atomic changes of mm_count
in the functions that switch from one task to another. The stock kernel has some.

Exit status: 0 if "guest" has none; 1 if it has; 2 if that could not be found out.
EOT
}

die() {
	printf 'guest-kernel/check-switch-path.sh: %s\n' "$*" >&2
	exit 2
}

# The atomic additions of kernel $1 to what a pointer points to. mm_count is the first field of struct mm_struct
# (include/linux/mm_types.h) for the sake of its cache line, and no other counter that a switch changes is first.
changes() {
	local vmlinux symbol symbols
	vmlinux=$("$here/build.sh" "$1" | tail -n 1)/vmlinux
	mapfile -t symbols < <(nm "$vmlinux" | awk -v wanted="$functions" '$2 ~ /[tT]/ && $3 ~ wanted { print $3 }')
	[ "${#symbols[@]}" -ge 4 ] || die "$vmlinux: only ${symbols[*]:-no function} is there"
	for symbol in "${symbols[@]}"; do
		objdump --disassemble="$symbol" --no-show-raw-insn "$vmlinux" |
			grep -E 'lock (inc|dec|add|sub|xadd)[lq]? +([^(]*,)?(0x0)?\(%r[a-z0-9]+\)$' | sed "s/^/$1: $symbol: /" || true
	done
}

case ${1:-} in
'') ;;
-h | --help) usage && exit 0 ;;
*) die "'$1': takes no arguments (--help says more)" ;;
esac
for tool in nm objdump; do
	command -v "$tool" >/dev/null || die "$tool is not installed: apt-get install binutils"
done
stock=$(changes stock)
guest=$(changes guest)
[ -n "$stock" ] || die "the stock kernel changes no counter either: this check does not know where to look"
printf '%s\n' "$stock"
if [ -n "$guest" ]; then
	printf '%s\n' "$guest" 'the kernel with the series changes a counter when it switches'
	exit 1
fi
printf 'the series has no atomic change of mm_count, stock has %d\n' "$(wc -l <<<"$stock")"
