#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the packages of the last commit twice, from two clones at different paths, with nothing built before, another umask and
# another time zone, and fails unless they are the same, byte by byte. What differs is told and kept.
#
# usage: vmm/debian/reproducible.sh [--kernel]      --kernel: those of guest-kernel/cloud.sh, too (twice three quarters of an hour)
set -euo pipefail

tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

say() { echo "reproducible: $*" >&2; }

# The packages of the clone $1 come to lie in $1.debs. EDK2 itself is unpacked once: it is input.
build_in() {
	local clone=$1 kernel=
	say "building in $clone"
	git clone --quiet --no-checkout "$tree" "$clone"
	git -C "$clone" -c advice.detachedHead=false checkout --quiet "$commit"
	export FLATBOOT_CACHE=$clone/cache EDK2_SRC=$edk2
	mkdir "$FLATBOOT_CACHE"
	# As make packages has it.
	[ -z "$with_kernel" ] || kernel=$(EMULATION=0 "$clone/guest-kernel/cloud.sh")
	"$clone/vmm/debian/build.sh" ${kernel:+"$kernel"} >/dev/null
	mv "$clone/target/packages" "$clone.debs"
	rm -rf "$clone"
}

# Says which files of the packages $1 and $2 differ.
tell() {
	local which one=$work/one other=$work/other
	rm -rf "$one" "$other"
	dpkg-deb --raw-extract "$1" "$one"
	dpkg-deb --raw-extract "$2" "$other"
	which=$(diff -rq --no-dereference "$one" "$other" | sed "s|$work/||g; s|^|  |") || true
	say "$(basename "$1") differs:"
	echo "${which:-  only in what is said of its files}" >&2
}

compare() {
	local deb other same=0 differ=0
	for deb in "$1"/*.deb; do
		other=$2/$(basename "$deb")
		if cmp -s "$deb" "$other"; then
			same=$((same + 1))
		else
			differ=$((differ + 1))
			tell "$deb" "$other"
		fi
	done
	[ "$(ls "$1")" = "$(ls "$2")" ] || { say "there are other packages in the one than in the other"; differ=1; }
	say "$same packages are the same"
	[ "$differ" -eq 0 ]
}

main() {
	with_kernel=
	case "$*" in
	'') ;;
	--kernel) with_kernel=1 ;;
	*) say "takes --kernel or nothing, got: $*"; exit 2 ;;
	esac
	commit=$(git -C "$tree" rev-parse HEAD)
	[ -z "$(git -C "$tree" status --porcelain)" ] || say "what is not committed is left out"
	edk2=${EDK2_SRC:-$("$tree/firmware/build.sh" source)}
	# Not in /tmp, where programs may not be allowed to run, nor in this tree, whose settings for cargo would count twice.
	cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}
	mkdir -p "$cache"
	work=$(mktemp -d -p "$cache" reproducible-XXXXXXXX)
	trap 'rm -rf "$work"' EXIT
	build_in "$work/a"
	mkdir "$work/another"
	umask 027
	export TZ=Asia/Kolkata
	build_in "$work/another/place"
	if ! compare "$work/a.debs" "$work/another/place.debs"; then
		trap - EXIT
		say "both are kept in $work"
		exit 1
	fi
}

main "$@"
