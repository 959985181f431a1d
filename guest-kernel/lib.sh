# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# What the scripts that build from the kernel's source share: the source, a temporary directory, the log, the cache.

program=${program:?}    # the script that sources this, as messages call it
name=${name:-}          # what it builds: the first part of a directory's name in the cache
label=${label:-}        # the same, as messages about its progress call it
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
started=$SECONDS
cache=    # the directory of all that is built
work=     # the temporary build directory, removed at exit
child=    # the running command, ended at exit

say() { printf '[%4ds] %s: %s\n' $((SECONDS - started)) "$label" "$*" >&2; }

die() {
	printf '%s: %s\n' "$program" "$*" >&2
	exit 1
}

cleanup() {
	if [ -n "$child" ]; then
		# A command runs in a process group of its own, so its children end with it.
		kill -TERM -- "-$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	[ -z "$work" ] || rm -rf -- "$work"
}

# The value of NAME in BASE.
base() { sed -n "s/^$1=//p" "$here/BASE"; }

# Sets source (a directory, or the package's tarball) and source_id, which changes when the source does.
find_source() {
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
	# Names, sizes and times stand for the content: reading 1.5 GB for each call would take too long.
	source_id=$(cd "$source" && find . -name .git -prune -o -type f -printf '%P %s %T@\n' | sort | sha256sum)
}

# Runs "$@" with its output in $work/log and says every few seconds how far it is.
run_logged() {
	local what=$1 tick=0
	shift
	say "$what"
	set -m
	"$@" >>"$work/log" 2>&1 </dev/null &
	child=$!
	set +m
	while kill -0 "$child" 2>/dev/null; do
		sleep 0.5
		tick=$((tick + 1))
		[ $((tick % 16)) -ne 0 ] || say "$what ($(wc -l <"$work/log") steps)"
	done
	local rc=0
	wait "$child" || rc=$?
	child=
	[ "$rc" -eq 0 ] || {
		cp "$work/log" "$cache/$name-failed.log"
		tail -n 15 "$work/log" >&2
		die "$what failed (status $rc); the whole log is $cache/$name-failed.log"
	}
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

# Names the Debian package of the first COMMAND:PACKAGE that is missing.
need_tools() {
	local pair
	for pair in "$@"; do
		command -v "${pair%%:*}" >/dev/null ||
			die "${pair%%:*} is not installed: apt-get install ${pair##*:}"
	done
}

# Calls build() unless $name has been built from inputs of the same content, whose hash is $1, and prints the
# directory that holds the result: build() is to make $dest appear whole, from what it does in $work.
build_once() {
	dest=$cache/$name-$1
	# Two callers at once: the second waits here, then finds what the first has built.
	exec 9>"$dest.lock"
	flock -n 9 || {
		say "another build of this is running, waiting for it"
		flock 9
	}
	if [ ! -d "$dest" ]; then
		# We hold the lock, so whatever an earlier build left when it was killed is ours.
		rm -rf -- "$cache/.build-${dest##*/}".*
		work=$(mktemp -d "$cache/.build-${dest##*/}.XXXXXX")
		build
	fi
	say "ready: $dest"
	echo "$dest"
}

# The cache, and an end at which nothing is left running or lying about.
begin() {
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/kernel
	mkdir -p "$cache" 2>/dev/null || die "cannot create the cache $cache"
}
