#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the kernel's own mm selftests, and the initramfs that runs them in a VM, and prints the directory that holds it.
# shellcheck source-path=SCRIPTDIR/..
set -euo pipefail

program=guest-kernel/tests/selftests.sh
name=selftests label=selftests
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
ours=$here/tests/selftests     # what is not from the kernel's source

usage() {
	cat <<EOT
Usage: guest-kernel/tests/selftests.sh

Builds the programs that guest-kernel/tests/selftests/list names, statically, from that
directory and the kernel's tools/testing/selftests/mm, and packs them with an init
that runs them.

The last line of standard output is a directory that holds selftests.cpio, an initramfs:
    flatboot run --memory size=3G --kernel vmlinux --initramfs selftests.cpio
and, if stress-ng is installed, with-stress.cpio, the same with stress-ng and its libraries.

Its init reports each test as a line of JSON on the console; what is in it, says
guest-kernel/tests/selftests/init.c. The kernels debug and kasan have what the tests
exercise; with other kernels more of them are skipped, or fail.

Environment: KERNEL_SRC, FLATBOOT_CACHE as for guest-kernel/build.sh
EOT
}

# The programs of the list, each once: with_swap runs another.
programs() { awk '!/^#/ && NF { print $4; if ($4 == "with_swap") print $5 }' "$ours/list" | sort -u; }

stress_ng=$(command -v stress-ng || true)

# The content hash of everything that decides what comes out.
content_key() {
	{
		echo "$source_id"
		gcc --version
		cat -- "$ours"/* "$here/tests/selftests.sh" "$here/../benches/build-lib.sh" "$here/lib.sh"
		[ -z "$stress_ng" ] || cat -- "$stress_ng"
	} | sha256sum | cut -c1-16
}

# The kernel's user-space headers: the C library's are older.
install_headers() {
	mkdir "$work/out"
	run_logged "installing the kernel's headers" make -C "$work/src" O="$work/out" ARCH=x86_64 headers
}

# From the directory of the tests, whose names of scratch files have __FILE__ in them. _FORTIFY_SOURCE makes warnings
# out of what they do on purpose, as the kernel's own Makefile says.
compile_theirs() {
	local more=() tests=$work/src/tools/testing/selftests
	[ -f "$tests/mm/$1.c" ] || die "$ours/list: there is no $1.c, neither here nor in tools/testing/selftests/mm"
	case $1 in
	uffd-*) more=(uffd-common.c) ;;
	khugepaged) more=(-include kselftest.h) ;;	# it uses KSFT_SKIP, but does not include what defines it
	compaction_test | hugetlb-soft-offline) more=(-include no_shell.h) ;;
	esac
	cd "$tests/mm"
	gcc -std=gnu11 -O2 -Wall -U_FORTIFY_SOURCE -static -s -I"$work" -I"$ours" -I"$work/src" -I"$tests" \
		-isystem "$work/out/usr/include" -isystem "$work/src/tools/include/uapi" \
		-o "$work/root/selftests/$1" "${more[@]}" "$1.c" vm_util.c thp_settings.c -lrt -lpthread -lm
}

# gcc has nothing to say of what is ours, or the build fails.
compile_ours() { gcc -std=gnu11 -O2 -Wall -Wextra -Werror -static -s -o "$1" "$ours/$2.c"; }

compile_program() {
	if [ -f "$ours/$1.c" ]; then compile_ours "$work/root/selftests/$1" "$1"; else compile_theirs "$1"; fi
}

compile_programs() {
	local test
	# What the kernel's check_config.sh would find out: no liburing, whose tests are skipped.
	: >"$work/local_config.h"
	mkdir -p "$work/root/selftests"
	for test in $(programs); do
		run_logged "compiling $test" compile_program "$test"
	done
}

# What is under DIRECTORY, as an archive that the kernel takes for an initramfs.
archive() { (cd "$1" && find . | sort | cpio --quiet -o -H newc --reproducible); }

# The kernel unpacks one archive after the other: a second one has what only the stress test needs.
pack_stress() {
	local root=$work/stress library
	mkdir -p "$root/selftests"
	cp "$stress_ng" "$root/selftests/stress-ng"
	# "NAME => PATH (ADDRESS)", or the path alone for the dynamic linker.
	ldd "$stress_ng" | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
		mkdir -p "$root${library%/*}"
		cp -L "$library" "$root$library"
	done
	archive "$root" | cat "$work/result/selftests.cpio" - >"$work/result/with-stress.cpio"
}

pack() {
	mkdir "$work/result"
	cp "$ours/list" "$work/root/selftests/list"
	archive "$work/root" >"$work/result/selftests.cpio"
	[ -z "$stress_ng" ] || run_logged "packing $stress_ng" pack_stress
}

build() {
	copy_source
	install_headers
	compile_programs
	run_logged "compiling init" compile_ours "$work/root/init" init
	pack
	mv -T "$work/result" "$dest"
}

main() {
	case ${1:-} in
	'') ;;
	-h | --help) usage && exit 0 ;;
	*) die "'$1': takes no argument (--help says more)" ;;
	esac
	begin kernel
	need_tools gcc:gcc make:make xz:xz-utils tar:tar sha256sum:coreutils flock:util-linux awk:mawk cpio:cpio
	find_source
	build_once "$(content_key)"
}

main "$@"
