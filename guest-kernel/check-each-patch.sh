#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds and boots what there is after each patch of the series: who looks for a fault by bisection may stop at any of them.
set -euo pipefail

program=guest-kernel/check-each-patch.sh
# shellcheck source-path=SCRIPTDIR source=kernel.sh
. "$(dirname "${BASH_SOURCE[0]}")/kernel.sh"

bin=$here/../target/x86_64-unknown-linux-gnu/release
# What a guest does: it takes most of its memory, and its kernel may not have complained.
checks='cpus=2,take=90%,calm'

usage() {
	cat <<EOF
Usage: guest-kernel/check-each-patch.sh

Builds the kernel "guest" after each of its patches, in one tree, with as much of its configuration as there is by
then. A compiler's warning counts as a failure. A VM of 2 GiB and 2 vCPUs boots each, takes 90 % of its memory, and
its kernel may not complain. The first one takes 4 to 5 minutes on two idle cores, most others less than one.

What has passed is remembered with the content of all that it was made of, so another call begins at the first patch
that has changed.

Exit status: 0 if all have passed; 1 at the first that has not; 2 if none could be tried.

Environment: KERNEL_SRC, JOBS, FLATBOOT_CACHE as of guest-kernel/build.sh
EOF
}

# Until there is a tree to apply patches to, nothing is said of them.
status=2
die() {
	printf 'guest-kernel/check-each-patch.sh: %s\n' "$*" >&2
	exit "$status"
}

# An option comes with its patch: before that, it is no fault that it is missing.
configure_for_now() {
	if [ ! -d "$work/out" ]; then
		mkdir "$work/out"
		run_logged "configuring" kmake tinyconfig
	fi
	(cd "$work/out" && "$work/src/scripts/kconfig/merge_config.sh" -m -O "$work/out" .config "${fragments[@]}") \
		>>"$work/log" 2>&1 || die "merge_config.sh failed on ${fragments[*]}"
	run_logged "resolving the configuration" kmake olddefconfig
}

compile() {
	configure_for_now
	: >"$work/log"
	run_logged "compiling" kmake -j"${JOBS:-$(nproc)}" vmlinux
	! grep -iE '\bwarning: ' "$work/log" >&2 || die "$label: compiled with a warning"
}

# Whether a VM with the kernel has passed its checks, and has ended by itself.
run_vm() {
	"$bin/flatboot-bench" exec --timeout 300 -- "$bin/flatboot" run --cpus boot=2 --memory size=2G \
		--kernel "$work/out/vmlinux" --initramfs "$work/initramfs" --cmdline "quiet flatboot.check=$checks" \
		>"$work/console" 2>"$work/stderr" </dev/null && grep -q '"check":"done","ok":true' "$work/console"
}

# A machine that is emulated may end by itself, seldom, whatever runs in it: a VM gets a second chance.
boot() {
	say "booting"
	run_vm && return
	tail -n 20 "$work/console" "$work/stderr" >&2
	say "booting once more"
	run_vm && return
	tail -n 20 "$work/console" "$work/stderr" >&2
	die "$label: a VM does not boot with it, or complains"
}

# check_patch I: the patch number I of all, on those before it.
check_patch() {
	local stamp
	label="after $(basename "$(dirname "${all[$1]}")")/$(basename "${all[$1]}" | cut -c1-4)"
	patches=("${all[@]:0:$1+1}")
	stamp=$cache/each-patch/$(content_key "$here/check-each-patch.sh")
	patches=("${all[$1]}")
	apply_patches
	if [ -e "$stamp" ]; then
		say "has passed before"
		return
	fi
	compile
	[ $(($1 + 1)) -lt "${#all[@]}" ] || check_config
	boot
	: >"$stamp"
}

main() {
	case ${1:-} in
	'') ;;
	-h | --help) usage && exit 0 ;;
	*) die "'$1': takes no arguments (--help says more)" ;;
	esac
	[ -x "$bin/flatboot-bench" ] || die "$bin/flatboot-bench is missing: make build"
	begin kernel
	name=guest label='each patch'
	check_tools
	describe
	find_source
	local all=("${patches[@]}") i
	mkdir -p "$cache/each-patch"
	# As long as this runs: what it leaves when it is killed is removed by whoever builds next.
	exec 9>"$cache/each-patch.lock"
	flock -n 9 || die "this runs already"
	work=$(mktemp -d "$cache/.build-each-patch.XXXXXX")
	copy_source
	"$bin/flatboot-bench" initramfs "$work/initramfs" || die "there is no initramfs"
	status=1
	for i in "${!all[@]}"; do
		check_patch "$i"
	done
	printf '%d passed, 0 failed: each patch builds and boots on those before it\n' "${#all[@]}"
}

main "$@"
