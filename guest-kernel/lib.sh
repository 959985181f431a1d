# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# What the scripts that build from the kernel's source share: the source, and what all builds share (build-lib.sh).

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source-path=SCRIPTDIR source=../benches/build-lib.sh
. "$here/../benches/build-lib.sh"

# Sets source (a directory, or the package's tarball) and source_id, which changes when the source does.
find_source() {
	case $cache in
	*[[:space:]:]*) die "$cache: the kernel's makefiles take no path with spaces or colons: set FLATBOOT_CACHE to another" ;;
	esac
	if [ -z "${KERNEL_SRC:-}" ]; then
		source=$(base TARBALL)
		[ -r "$source" ] || die "$source is missing: apt-get install $(base PACKAGE), or set KERNEL_SRC to a Linux $(base SERIES).y tree"
		source_id=$(sha256sum <"$source")
		return
	fi
	source=$(cd "$KERNEL_SRC" 2>/dev/null && pwd) || die "KERNEL_SRC=$KERNEL_SRC is not a directory"
	[ -f "$source/scripts/kconfig/merge_config.sh" ] ||
		die "KERNEL_SRC=$KERNEL_SRC is not a Linux source tree: it has no scripts/kconfig/merge_config.sh"
	local version
	version=$(awk '/^(VERSION|PATCHLEVEL) = /{printf "%s%s", s, $3; s="."}' "$source/Makefile")
	[ "$version" = "$(base SERIES)" ] ||
		die "KERNEL_SRC=$KERNEL_SRC is Linux $version; the series is for $(base SERIES).y"
	if [ -e "$source/.config" ] || [ -d "$source/include/config" ]; then
		die "KERNEL_SRC=$KERNEL_SRC has been built in: run make mrproper there first"
	fi
	source_id=$(tree_id "$source")
}

# The package's tarball is unpacked once; a tree of another name would mean a half-done one.
unpack_tarball() {
	local tree
	tree=$cache/source-$(echo "$source_id" | cut -c1-16)
	exec 8>"$tree.lock"
	flock 8
	if [ ! -d "$tree" ]; then
		rm -rf -- "$tree".tmp
		mkdir "$tree".tmp
		run_logged "unpacking $source" tar -xf "$source" -C "$tree".tmp --strip-components=1
		mv "$tree".tmp "$tree"
	fi
	flock -u 8
	source=$tree
}

# A tree of our own, since patches change it. Hard links into the cache are safe: patch(1) never
# writes into a file in place, and the build writes to another directory.
copy_source() {
	if [ -z "${KERNEL_SRC:-}" ]; then
		unpack_tarball
		cp -al -- "$source" "$work/src"
	else
		run_logged "copying $source" cp -a --reflink=auto -- "$source" "$work/src"
	fi
}
