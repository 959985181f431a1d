#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds one of the kernels and prints the directory that holds it (vmlinux, bzImage, config).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
started=$SECONDS
work=     # the temporary build directory, removed at exit
child=    # the running make, ended at exit

usage() {
	cat <<EOF
Usage: guest-kernel/build.sh guest|base|stock|host

  guest   the whole series; base, debian and emulation configuration
  base    the whole series; base and emulation configuration
  stock   the boot marks only, configured as guest: what the series is compared with
  host    no patch; the kernel of the emulated KVM host (benches/host/host.config)

Progress goes to standard error. The last line of standard output is the directory
that holds vmlinux, bzImage and config. Built once per content of all inputs.

Environment:
  KERNEL_SRC=DIR      a clean Linux source tree instead of Debian's package (see BASE)
  EMULATION=0         leave out emulation.config: for kernels that only meet real KVM
  JOBS=N              how many compilers at once (default: the number of processors)
  FLATBOOT_CACHE=DIR  where kernels are kept (default: \$XDG_CACHE_HOME/flatboot, ~/.cache/flatboot)
EOF
}

say() { printf '[%4ds] kernel %s: %s\n' $((SECONDS - started)) "$name" "$*" >&2; }

die() {
	printf 'guest-kernel/build.sh: %s\n' "$*" >&2
	exit 1
}

cleanup() {
	if [ -n "$child" ]; then
		# make runs in a process group of its own, so its compilers end with it.
		kill -TERM -- "-$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	[ -z "$work" ] || rm -rf -- "$work"
}

# The value of NAME in BASE.
base() { sed -n "s/^$1=//p" "$here/BASE"; }

# What the kernel called $name is made of: sets patches and fragments.
describe() {
	local all=("$here"/patches/000[1-9]-*.patch) config=$here/config
	patches=()
	case $name in
	guest | base)
		patches=("${all[@]}")
		fragments=("$config/base.config")
		[ "$name" = base ] || fragments+=("$config/debian.config")
		fragments+=("$config/marks.config" "$config/handoff.config")
		;;
	stock)
		patches=("$here"/patches/0001-*.patch)
		fragments=("$config/base.config" "$config/debian.config" "$config/marks.config")
		;;
	host)
		fragments=("$here/../benches/host/host.config")
		return
		;;
	esac
	[ "${EMULATION:-1}" = 0 ] || fragments+=("$config/emulation.config")
}

# Names the Debian package of the first build tool that is missing.
check_tools() {
	local pair
	for pair in gcc:gcc make:make ld:binutils flex:flex bison:bison bc:bc perl:perl patch:patch \
		xz:xz-utils tar:tar gzip:gzip sha256sum:coreutils flock:util-linux awk:mawk cpio:cpio; do
		command -v "${pair%%:*}" >/dev/null ||
			die "${pair%%:*} is not installed: apt-get install ${pair##*:}"
	done
	# objtool links with libelf.
	echo '#include <gelf.h>' | gcc -E - >/dev/null 2>&1 ||
		die "gelf.h is not installed: apt-get install libelf-dev"
}

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

# The content hash of everything that decides what the kernel will be.
content_key() {
	{
		echo "$source_id"
		gcc --version
		ld --version
		cat -- "${patches[@]}" "${fragments[@]}" "$here/build.sh"
	} | sha256sum | cut -c1-16
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

apply_patches() {
	local p
	for p in "${patches[@]}"; do
		say "applying ${p##*/}"
		patch -d "$work/src" -p1 --batch --forward --fuzz=0 <"$p" >"$work/patch.log" 2>&1 || {
			grep -E 'FAILED|hunk|find file' "$work/patch.log" >&2 || true
			die "${p##*/} does not apply to ${KERNEL_SRC:-$(base TARBALL)}"
		}
	done
}

kmake() {
	make -C "$work/src" O="$work/out" ARCH=x86_64 KBUILD_BUILD_USER=flatboot KBUILD_BUILD_HOST=flatboot \
		KBUILD_BUILD_TIMESTAMP='1970-01-01' KBUILD_BUILD_VERSION=1 "$@"
}

# Kconfig drops without a word what it cannot have: every line asked for must be in the result.
check_config() {
	awk '
		function norm(v) { return v == "" ? "n" : v }
		/^CONFIG_[A-Z0-9a-z_]+=/ || /^# CONFIG_[A-Z0-9a-z_]+ is not set/ {
			if ($1 == "#") { sym = $2; val = "n" }
			else { sym = $0; sub(/=.*/, "", sym); val = $0; sub(/^[^=]*=/, "", val) }
			if (FILENAME == final) got[sym] = val
			else { want[sym] = val; from[sym] = FILENAME }
		}
		END {
			for (s in want) if (norm(want[s]) != norm(got[s])) {
				f = from[s]; sub(/.*\//, "", f)
				printf "%s: %s asks for %s, the merged configuration has %s\n", s, f, want[s], norm(got[s])
				bad = 1
			}
			exit bad
		}' final="$work/out/.config" "${fragments[@]}" "$work/out/.config" >&2 ||
		die "the configuration of $name is not what its fragments ask for"
}

configure() {
	mkdir "$work/out"
	run_logged "configuring" kmake tinyconfig
	(cd "$work/out" && "$work/src/scripts/kconfig/merge_config.sh" -m -O "$work/out" .config "${fragments[@]}") \
		>>"$work/log" 2>&1 || die "merge_config.sh failed on ${fragments[*]}"
	run_logged "resolving the configuration" kmake olddefconfig
	check_config
}

# The directory appears whole or not at all.
install_result() {
	mkdir "$work/result"
	cp "$work/out/vmlinux" "$work/result/vmlinux"
	cp "$work/out/arch/x86/boot/bzImage" "$work/result/bzImage"
	cp "$work/out/.config" "$work/result/config"
	mv -T "$work/result" "$dest"
}

build() {
	# We hold the lock, so whatever an earlier build of this kernel left when it was killed is ours.
	rm -rf -- "$cache/.build-${dest##*/}".*
	work=$(mktemp -d "$cache/.build-${dest##*/}.XXXXXX")
	copy_source
	apply_patches
	configure
	run_logged "compiling" kmake -j"${JOBS:-$(nproc)}" vmlinux bzImage
	install_result
}

main() {
	case ${1:-} in
	guest | base | stock | host) name=$1 ;;
	-h | --help) usage && exit 0 ;;
	*) die "'${1:-}' is none of guest, base, stock, host (--help says more)" ;;
	esac
	[ $# -eq 1 ] || die "takes one kernel name, got $#: $*"
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	check_tools
	describe
	find_source
	cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/kernel
	mkdir -p "$cache" 2>/dev/null || die "cannot create the cache $cache"
	dest=$cache/$name-$(content_key)
	# Two callers at once: the second waits here, then finds the kernel of the first.
	exec 9>"$dest.lock"
	flock -n 9 || {
		say "another build of this kernel is running, waiting for it"
		flock 9
	}
	[ -d "$dest" ] || build
	say "ready: $dest"
	echo "$dest"
}

main "$@"
