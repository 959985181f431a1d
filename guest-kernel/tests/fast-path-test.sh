#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# fast-path.pl on small objects: what it must not mind, and what it must find.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in as objdump perl diff; do
	command -v "$tool" >/dev/null || {
		echo "guest-kernel/tests/fast-path-test.sh: $tool is not installed: apt-get install binutils perl diffutils" >&2
		exit 1
	}
done
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
failures=0

# A static branch at label $1 to $2 on key $3, which jumps while the key is off if $4 is 1.
branch() {
	printf '.pushsection __jump_table, "aw"\n.balign 8\n.long %s - ., %s - .\n.quad %s + %d - .\n.popsection\n' "$@"
}

# Assembles $1.o: get_page_from_freelist comes from standard input, the other fast paths do nothing.
object() {
	{
		echo '.text'
		for function in __alloc_pages_noprof alloc_pages_bulk_noprof free_unref_page free_unref_folios __free_pages; do
			printf '.globl %s\n.type %s, @function\n%s: mov %%rdi, %%rax\nret\n.size %s, .-%s\n' \
				$function $function $function $function $function
		done
		printf '.globl get_page_from_freelist\n.type get_page_from_freelist, @function\nget_page_from_freelist:\n'
		cat
		printf '.data\n.type deferred_pages, @object\n.size deferred_pages, 16\ndeferred_pages: .quad 0, 0\n'
		printf '.type other_key, @object\n.size other_key, 16\nother_key: .quad 0, 0\n'
	} >"$work/$1.s"
	as -o "$work/$1.o" "$work/$1.s"
}

# Compares "stock" with $1, expects exit status $2 and words $3 in what is said.
expect() {
	local rc=0
	perl "$here/../fast-path.pl" "$work/stock.o" "$work/$1.o" >"$work/said" 2>&1 || rc=$?
	if [ "$rc" -ne "$2" ] || ! grep -qF -- "$3" "$work/said"; then
		echo "$1: exit status $rc and not $2, or not '$3':"
		cat "$work/said"
		failures=$((failures + 1))
	fi
}

end='.size get_page_from_freelist, .-get_page_from_freelist'

object stock <<EOT
	test %rsi, %rsi
	je 3f
1:	nopl 0(%rax,%rax,1)
2:	mov watermark(%rip), %rax
	call zone_check
	ret
3:	xor %eax, %eax
	ret
4:	call grow
	jmp 2b
$(branch 1b 4b deferred_pages 0)
$end
EOT
expect stock 0 '6 fast paths, all the same'

# More behind the branches that are off, another one, and everything elsewhere.
object moved <<EOT
	nop
	test %rsi, %rsi
	je 3f
1:	nopl 0(%rax,%rax,1)
	jmp 5f
3:	xor %eax, %eax
	ret
4:	mov %rdi, %rdx
	call grow_any
	jmp 5f
5:	mov watermark(%rip), %rax
6:	jmp 7f
	call grow_more
7:	call zone_check
	ret
$(branch 1b 4b deferred_pages 0)
$(branch 6b 7b series_key 1)
$end
EOT
expect moved 0 '6 fast paths, all the same'
grep -q 'static branches taken as off: deferred_pages, series_key' "$work/said" || { echo 'moved: not said what is off'; failures=$((failures + 1)); }

# An instruction more where everyone comes by.
object slower <<EOT
	test %rsi, %rsi
	je 3f
1:	nopl 0(%rax,%rax,1)
2:	mov watermark(%rip), %rax
	test %rax, %rax
	call zone_check
	ret
3:	xor %eax, %eax
	ret
4:	call grow
	jmp 2b
$(branch 1b 4b deferred_pages 0)
$end
EOT
expect slower 1 $'+\ttest   %rax,%rax'

# The same instructions, of which one reads something else, and a branch that turned round.
sed 's/watermark(/other_mark(/' "$work/stock.s" >"$work/other.s" && as -o "$work/other.o" "$work/other.s"
expect other 1 'other_mark'
sed 's/je 3f/jne 3f/' "$work/stock.s" >"$work/turned.s" && as -o "$work/turned.o" "$work/turned.s"
expect turned 1 $'+\tjne'
# What was off is a condition now.
sed 's/nopl 0(%rax,%rax,1)/js 4f/; /__jump_table/,/popsection/d' "$work/stock.s" >"$work/tested.s" && as -o "$work/tested.o" "$work/tested.s"
expect tested 1 $'+\tjs'
# A static branch that upstream has counts both ways.
sed '/__jump_table/,/popsection/s/deferred_pages/other_key/' "$work/stock.s" >"$work/key.s" && as -o "$work/key.o" "$work/key.s"
cp "$work/key.o" "$work/stock.o"
sed 's/call grow/call shrink/' "$work/key.s" >"$work/behind.s" && as -o "$work/behind.o" "$work/behind.s"
expect behind 1 $'+\tcall shrink'

# Two conditions of one &&, then in another order; and what is none: another goal, a store between.
object stock <<EOT
	mov first(%rip), %rcx
	test %rcx, %rcx
	je 3f
	cmp \$8, %esi
	ja 3f
	call zone_check
3:	ret
4:	call fail
	ret
$end
EOT
object swapped <<EOT
	cmp \$8, %esi
	ja 3f
	mov first(%rip), %rcx
	test %rcx, %rcx
	je 3f
	call zone_check
3:	ret
4:	call fail
	ret
$end
EOT
expect swapped 0 '; conditions of an && in another order'
sed '0,/ja 3f/s//ja 4f/' "$work/swapped.s" >"$work/elsewhere.s" && as -o "$work/elsewhere.o" "$work/elsewhere.s"
expect elsewhere 1 'fast paths that differ: get_page_from_freelist'
sed 's/je 3f/&\n\tmov %rcx, 8(%rdi)/' "$work/stock.s" >"$work/stored.s" && as -o "$work/stored.o" "$work/stored.s"
sed 's/je 3f/&\n\tmov %rcx, 8(%rdi)/' "$work/swapped.s" >"$work/later.s" && as -o "$work/later.o" "$work/later.s"
cp "$work/stored.o" "$work/stock.o"
expect later 1 'fast paths that differ: get_page_from_freelist'
sed 's/8, %esi/7, %esi/' "$work/stored.s" >"$work/bound.s" && as -o "$work/bound.o" "$work/bound.s"
expect bound 1 '0x7'

echo 'no object' >"$work/text.o"
expect text 2 'fast-path.pl: '
rm "$work/text.o"
expect text 2 'text.o: cannot be read'

[ "$failures" -eq 0 ] || exit 1
echo 'the comparison of fast paths finds what differs, and nothing else'
