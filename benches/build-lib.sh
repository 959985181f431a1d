# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts that build kernels and firmware share: messages, progress, the cache. To be sourced.

program=${program:?}    # the script that sources this, as messages call it
name=${name:-}          # what it builds: the first part of a directory's name in the cache
label=${label:-}        # the same, as messages about its progress call it
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

# The value of NAME in the file BASE of $here, the script's directory.
base() { sed -n "s/^$1=//p" "${here:?}/BASE"; }

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

# Names the Debian package of the first COMMAND:PACKAGE that is missing.
need_tools() {
	local pair
	for pair in "$@"; do
		command -v "${pair%%:*}" >/dev/null ||
			die "${pair%%:*} is not installed: apt-get install ${pair##*:}"
	done
}

# What changes when the tree $1 does. Names, sizes and times stand for the content: reading 1.5 GB for each call would take too long.
tree_id() {
	(cd "$1" && find . \( -name .git -o -name __pycache__ \) -prune -o -type f -printf '%P %s %T@\n' | sort | sha256sum)
}

# What builds have left that were killed: nobody holds their locks.
sweep_up() {
	local left lock
	for left in "$cache"/.build-*.??????; do
		lock=${left##*/.build-}
		lock=$cache/${lock%.*}.lock
		[ ! -e "$lock" ] || flock -n "$lock" rm -rf -- "$left" || true
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
		sweep_up
		# We hold the lock, so whatever an earlier build left when it was killed is ours.
		rm -rf -- "$cache/.build-${dest##*/}".*
		work=$(mktemp -d "$cache/.build-${dest##*/}.XXXXXX")
		build
	fi
	say "ready: $dest"
	echo "$dest"
}

# The part of the cache called $1, and an end at which nothing is left running or lying about.
begin() {
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/$1
	mkdir -p "$cache" 2>/dev/null || die "cannot create the cache $cache"
	# Builds run in directories of their own.
	cache=$(cd "$cache" && pwd)
}
