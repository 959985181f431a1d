#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Compares the machine code of the page allocator's fast paths with and without the series.
#
# Two trees, configured alike with jump labels: "stock" has the boot marks alone, "guest" the whole series. Of each only
# mm/page_alloc.o is compiled, once for the same content (1 to 2 minutes each on two cores). fast-path.pl compares them.
set -euo pipefail

program=guest-kernel/check-fast-path.sh
# shellcheck source-path=SCRIPTDIR source=kernel.sh
. "$(dirname "${BASH_SOURCE[0]}")/kernel.sh"

fast_path_usage() {
	cat <<EOT
Usage: guest-kernel/check-fast-path.sh

Exit status: 0 if every fast path is the same, static branches of the series apart; 1 if one differs,
and then what differs is printed; 2 if that could not be found out.

Environment: KERNEL_SRC, JOBS, FLATBOOT_CACHE as of guest-kernel/build.sh
EOT
}

die() {
	printf 'guest-kernel/check-fast-path.sh: %s\n' "$*" >&2
	exit 2
}

# Compiles mm/page_alloc.o of the kernel called $1 and sets object to where it is.
compile() {
	name=$1 label="kernel $1"
	describe
	# An object is decided by what decides a kernel, and by this script.
	dest=$cache/fast-path-$name-$(content_key "$here/check-fast-path.sh")
	exec 9>"$dest.lock"
	flock 9
	if [ ! -d "$dest" ]; then
		rm -rf -- "$cache/.build-${dest##*/}".*
		work=$(mktemp -d "$cache/.build-${dest##*/}.XXXXXX")
		copy_source
		apply_patches
		configure
		grep -q '^CONFIG_JUMP_LABEL=y' "$work/out/.config" || die "$name: configured without jump labels"
		run_logged "compiling mm/page_alloc.o" kmake -j"${JOBS:-$(nproc)}" mm/page_alloc.o
		mkdir "$work/result"
		cp "$work/out/mm/page_alloc.o" "$work/out/.config" "$work/result"
		mv -T "$work/result" "$dest"
		rm -rf -- "$work"
		work=
	fi
	flock -u 9
	object=$dest/page_alloc.o
}

fast_path_main() {
	case ${1:-} in
	'') ;;
	-h | --help) fast_path_usage && exit 0 ;;
	*) die "'$1': takes no arguments (--help says more)" ;;
	esac
	begin kernel
	name=fast-path label=fast-path
	check_tools
	command -v objdump >/dev/null || die "objdump is not installed: apt-get install binutils"
	# With emulation.config there would be no jump labels.
	export EMULATION=0
	find_source
	local package=$source stock
	compile stock
	stock=$object
	# Unpacking has replaced the package by its tree.
	source=$package
	compile guest
	perl "$here/fast-path.pl" "$stock" "$object"
}

fast_path_main "$@"
