#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the kernel's mm selftests under flatboot, each in a VM of its own for each way to set up the memmap, and compares.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=target/x86_64-unknown-linux-gnu/release
keep=target/selftests
started=$SECONDS
kernel=debug memory=3G tests='' cmdline='' modes=()

usage() {
	cat <<EOT
Usage: benches/selftests.sh [--kernel NAME] [--memory SIZE] [--tests A,B] [--cmdline TEXT] MODE...

  MODE             a value of memmap_init=; the first one is what the others are compared with
  --kernel NAME    what guest-kernel/build.sh calls the kernel (default: $kernel)
  --memory SIZE    of each VM (default: $memory, of which most is used; less makes mremap fail)
  --tests A,B      only these of guest-kernel/tests/selftests/list
  --cmdline TEXT   more for the kernel command line

Each test has a VM of its own, so most memory may still have to be set up when it begins, and none meets what another
left behind. Prints a line for each test. Exit status 1 if, in another mode than the first, a test gives another result or
passes fewer cases, or the kernel complained of something else; if it complained of anything and there is one mode only;
and if a VM did not end by itself. The consoles are kept in $keep.
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
		--kernel | --memory | --tests | --cmdline)
			[ $# -ge 2 ] || die "$1: a value is missing"
			printf -v "${1#--}" '%s' "$2"
			shift 2
			;;
		-*) die "'$1': no such option (--help says more)" ;;
		*) modes+=("$1") && shift ;;
		esac
	done
	[ ${#modes[@]} -gt 0 ] || die "no MODE: give one or more of memmap_init='s values, such as serial parallel"
}

# Runs a test in a VM. What comes of it is in its console; the exit status says nothing more.
run_test() {
	local mode=$1 test=$2 console=$3
	"$bin/flatboot-bench" door --timeout 1200 -- "$PWD/$bin/flatboot" run --cpus boot=2 --memory "size=$memory" \
		--kernel "$vmlinux" --initramfs "$initramfs" \
		--cmdline "quiet memmap_init=$mode selftests=$test${cmdline:+ $cmdline}" >"$console" 2>"$console.stderr" </dev/null || true
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

# Sets names: the tests to run.
choose() {
	local list=guest-kernel/tests/selftests/list name
	mapfile -t names < <(awk '!/^#/ && NF { print $1 }' "$list")
	[ -n "$tests" ] || return 0
	for name in ${tests//,/ }; do
		grep -q "^$name " "$list" || die "--tests $name: none of ${names[*]}"
	done
	IFS=, read -ra names <<<"$tests"
}

main() {
	parse "$@"
	[ -x "$bin/flatboot-bench" ] || die "$bin/flatboot-bench is missing: make build"
	vmlinux=$(guest-kernel/build.sh "$kernel")/vmlinux
	initramfs=$(guest-kernel/tests/selftests.sh)/selftests.cpio
	choose
	local mode consoles=()
	for mode in "${modes[@]}"; do
		run_mode "$mode"
		consoles+=("${names[@]/#/$keep/$mode/}")
	done
	awk -v modes="${modes[*]}" -f benches/selftests.awk "${consoles[@]/%/.console}"
}

main "$@"
