#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches Debian 12's kernel for clouds, unmodified; the last line on standard output is the path of its image.
#
# Cache: ${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/debian-cloud-kernel/<version>/vmlinuz
set -eu

PACKAGE=linux-image-cloud-amd64

die() { echo "debian-cloud-kernel.sh: $*" >&2; exit 1; }

# The package with the image, which $PACKAGE depends on. apt's own words are English only in this locale.
image_package() {
	LC_ALL=C apt-cache depends "$PACKAGE" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

main() {
	command -v apt-get >/dev/null || die "apt-get: not found; this fetches a Debian package"
	cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/debian-cloud-kernel
	package=$(image_package)
	[ -n "$package" ] || die "$PACKAGE: apt does not know it; run apt-get update with Debian 12's main in the sources"
	mkdir -p "$cache" || die "$cache: cannot make it"
	# One at a time; whoever waited finds the result.
	exec 9>"$cache/lock"
	flock -n 9 || { echo "debian-cloud-kernel.sh: waiting for another fetch" >&2; flock 9; }
	if [ ! -f "$cache/$package/vmlinuz" ]; then
		rm -rf "$cache"/fetching-*
		work=$(mktemp -d "$cache/fetching-XXXXXXXX")
		# shellcheck disable=SC2064 # the directory of now
		trap "rm -rf '$work'" EXIT
		# apt fetches as a user of its own.
		chmod 755 "$work"
		echo "debian-cloud-kernel.sh: fetching $package" >&2
		(cd "$work" && apt-get -q download "$package" >&2) || die "$package: cannot be fetched"
		dpkg-deb -x "$work"/*.deb "$work/tree"
		mkdir "$work/out"
		mv "$work"/tree/boot/vmlinuz-* "$work/out/vmlinuz"
		mv -T "$work/out" "$cache/$package"
	fi
	echo "$cache/$package/vmlinuz"
}

main "$@"
