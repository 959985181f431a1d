#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the kernel's mm selftests under flatboot, each in a VM of its own for each way to set up the memmap, and compares.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=target/x86_64-unknown-linux-gnu/release
keep=target/selftests
started=$SECONDS
kernel=debug memory='' cpus=2 tests='' cmdline='' seconds='' modes=()
list=guest-kernel/tests/selftests/list

usage() {
	cat <<EOT
Usage: benches/selftests.sh [--kernel NAME] [--memory SIZE] [--cpus N] [--tests A,B] [--seconds N] [--cmdline TEXT] MODE...

  MODE             a value of memmap_init=; the first one is what the others are compared with
  --kernel NAME    what guest-kernel/build.sh calls the kernel (default: $kernel); FLATBOOT_GUEST_KERNEL=DIR
                   takes the vmlinux in DIR instead
  --memory SIZE    of each VM (default: 3G, of which most is used; less makes mremap fail; 8G for gigantic)
  --cpus N         of each VM (default: $cpus)
  --tests A,B      only these of guest-kernel/tests/selftests/list
  --seconds N      how long a test runs that takes as long as it is told: stress, borrow-long; migrate-speed: at most
  --cmdline TEXT   more for the kernel command line

Each test has a VM of its own, so most memory may still have to be set up when it begins, and none meets what another
left behind. Prints a line for each test. Exit status 1 if a test fails, or is skipped in one mode and not in another; if, in
another mode than the first, it passes fewer cases, or the kernel complained of something else; with one mode only, if the
kernel complained; if a mode is not in effect and the kernel did not say why, or nothing was deferred in it that should be;
and if a VM did not end by itself. 4 if every test was skipped. The consoles are kept in $keep.
EOT
}

die() {
	printf 'benches/selftests.sh: %s\n' "$*" >&2
	exit 2
}

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help) usage && exit 0 ;;
		--kernel | --memory | --cpus | --tests | --seconds | --cmdline)
			[ $# -ge 2 ] || die "$1: a value is missing"
			printf -v "${1#--}" '%s' "$2"
			shift 2
			;;
		-*) die "'$1': no such option (--help says more)" ;;
		*) modes+=("$1") && shift ;;
		esac
	done
	[[ $seconds =~ ^([1-9][0-9]{0,4})?$ ]] || die "--seconds $seconds: must be a number of seconds, from 1 to 99999"
	[[ $cpus =~ ^[1-9][0-9]{0,2}$ ]] || die "--cpus $cpus: must be a number of vCPUs, from 1 to 999"
	[ ${#modes[@]} -gt 0 ] || die "no MODE: give one or more of memmap_init='s values, such as serial parallel"
}

# What a test needs on the kernel command line.
words_of() { awk -v test="$1" '$1 == test { $1 = ""; print }' "${list%/*}/cmdlines"; }

# What a VM has by itself: a run of 1 GiB is not always free in a smaller one.
memory_of() {
	case $1 in
	gigantic) echo 8G ;;
	*) echo 3G ;;
	esac
}

# Of an emulated host: as many as a VM has vCPUs, where there are so many; two at least.
host_cpus() {
	local here
	here=$(nproc)
	here=$((cpus < here ? cpus : here))
	echo $((here > 2 ? here : 2))
}

# Runs a test in a VM. What comes of it is in its console; the exit status says nothing more.
run_test() {
	local mode=$1 test=$2 console=$3 initramfs=$selftests/selftests.cpio words
	[ "$test" != stress ] || initramfs=$selftests/with-stress.cpio
	words="quiet debugfs=on memmap_init=$mode selftests=$test${seconds:+ seconds=$seconds}$(words_of "$test")"
	"$bin/flatboot-bench" exec --cpus "$(host_cpus)" --timeout $((1200 + ${seconds:-0})) -- "$PWD/$bin/flatboot" run --cpus "boot=$cpus" \
		--memory "size=${memory:-$(memory_of "$test")}" --kernel "$vmlinux" --initramfs "$initramfs" \
		--cmdline "$words${cmdline:+ $cmdline}" >"$console" 2>"$console.stderr" </dev/null || true
	grep -q '"check":"done"' "$console"
}

# A machine that is emulated may end by itself, seldom, whatever runs in it: such a test gets a second chance.
run_mode() {
	local mode=$1 test console
	mkdir -p "$keep/$mode"
	rm -f -- "$keep/$mode"/*.console*
	for test in "${names[@]}"; do
		console=$keep/$mode/$test.console
		printf '[%5ds] %s: %s\n' $((SECONDS - started)) "$mode" "$test" >&2
		run_test "$mode" "$test" "$console" && continue
		echo "NOTE  $mode, $test: the VM ended before its time: $(tail -n 1 "$console.stderr"); once more" >&2
		run_test "$mode" "$test" "$console" || true
	done
}

# Sets names: the tests to run. Those of 0 seconds only if they are asked for.
choose() {
	local name
	mapfile -t names < <(awk '!/^#/ && NF && $2 > 0 { print $1 }' "$list")
	[ -n "$tests" ] || return 0
	for name in ${tests//,/ }; do
		grep -q "^$name " "$list" || die "--tests $name: none of $(awk '!/^#/ && NF { printf "%s ", $1 }' "$list")"
		[ -n "$seconds" ] || awk -v name="$name" '$1 == name && !$2 { exit 1 }' "$list" ||
			die "--tests $name: --seconds N has to say for how long"
	done
	IFS=, read -ra names <<<"$tests"
}

# Sets vmlinux and selftests, the directory of the initramfs.
find_artifacts() {
	[ -x "$bin/flatboot-bench" ] || die "$bin/flatboot-bench is missing: make build"
	vmlinux=${FLATBOOT_GUEST_KERNEL:-$(guest-kernel/build.sh "$kernel")}/vmlinux || exit 2
	[ -r "$vmlinux" ] || die "FLATBOOT_GUEST_KERNEL=${FLATBOOT_GUEST_KERNEL:-}: there is no vmlinux in it"
	selftests=$(guest-kernel/tests/selftests.sh) || exit 2
	[[ " ${names[*]} " != *" stress "* ]] || [ -e "$selftests/with-stress.cpio" ] ||
		die "the test stress needs stress-ng: apt-get install stress-ng"
}

main() {
	parse "$@"
	choose
	find_artifacts
	mkdir -p "$keep"
	exec 9>"$keep/lock"
	flock --nonblock 9 || die "another run is writing $keep"
	local mode consoles=()
	for mode in "${modes[@]}"; do
		run_mode "$mode"
		consoles+=("${names[@]/#/$keep/$mode/}")
	done
	awk -v modes="${modes[*]}" -f benches/selftests.awk "${consoles[@]/%/.console}"
}

main "$@"
