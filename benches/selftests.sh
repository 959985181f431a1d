#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the kernel's mm selftests under flatboot, a VM for each way to set up the memmap, and compares what came of them.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=target/x86_64-unknown-linux-gnu/release
keep=target/selftests
kernel=debug memory=3G tests='' cmdline='' modes=()

usage() {
	cat <<EOT
Usage: benches/selftests.sh [--kernel NAME] [--memory SIZE] [--tests A,B] [--cmdline TEXT] MODE...

  MODE             a value of memmap_init=; the first one is what the others are compared with
  --kernel NAME    what guest-kernel/build.sh calls the kernel (default: $kernel)
  --memory SIZE    of each VM (default: $memory, of which most is used; less makes mremap fail)
  --tests A,B      only these of guest-kernel/tests/selftests/list
  --cmdline TEXT   more for the kernel command line

Prints a line for each test. Exit status 1 if, in another mode than the first, a test gives another result or passes
fewer cases, or the kernel complained of something else; if it complained of anything and there is one mode only; and
if not all tests have run. The consoles are kept in $keep.
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

# Runs all tests in one VM. What comes of them is in its console; its exit status says nothing more.
run_mode() {
	local mode=$1 console=$keep/$1.console
	echo "==> $mode: $(date +%T), console in $console" >&2
	"$bin/flatboot-bench" door --timeout 3600 -- "$PWD/$bin/flatboot" run --cpus boot=2 --memory "size=$memory" \
		--kernel "$vmlinux" --initramfs "$initramfs" \
		--cmdline "quiet memmap_init=$mode${tests:+ selftests=$tests}${cmdline:+ $cmdline}" >"$console" </dev/null ||
		echo "==> $mode: the VM ended with exit status $?" >&2
}

# Reads the consoles, one a mode; init.c writes one report a line, its fields in a fixed order.
compare() {
	awk '
		function field(name,	at, rest) {
			at = index($0, "\"" name "\":")
			rest = substr($0, at + length(name) + 3)
			if (sub(/^"/, "", rest)) sub(/".*/, "", rest)
			else if (rest ~ /^\[/) { if (!match(rest, /\](}|,"[a-z]+":\[)/)) RSTART = length(rest); rest = substr(rest, 2, RSTART - 2) }
			else sub(/[,}].*/, "", rest)
			return at ? rest : ""
		}
		function bad(what) { printf "BAD   %s\n", what; failed = 1 }
		# The first mode complains too: then it is not the mode that is to blame. Numbers differ from boot to boot.
		function complaint(place, text,	same) {
			same = text
			gsub(/[0-9a-f]*[0-9][0-9a-f]*/, "#", same)
			if (mode == modes[1]) first[place, same] = 1
			if (mode == modes[1] && ARGC > 2) printf "NOTE  %s, %s: the kernel said %s\n", mode, place, text
			else if ((place, same) in first && mode != modes[1]) printf "NOTE  %s, %s: the same\n", mode, place
			else bad(mode ", " place ": the kernel said " text)
		}
		FNR == 1 { mode = FILENAME; sub(/.*\//, "", mode); sub(/\.console$/, "", mode); modes[++n] = mode }
		!/FLATBOOT \{"check":/ { next }
		{ sub(/^.*FLATBOOT /, ""); sub(/\r$/, ""); check = field("check") }
		field("kernel") != "" { complaint(check == "boot" ? "boot" : field("name"), field("kernel")) }
		check == "memmap_verify" && field("ok") != "true" { bad(mode ": memmap_verify: " field("lines")) }
		check == "done" { done[mode] = 1 }
		check == "selftest" {
			name = field("name")
			if (!(name in known)) { known[name] = 1; order[++count] = name }
			result[name, mode] = field("result")
			passed[name, mode] = field("passed") + 0
			why[name, mode] = field("failures")
			deferred[name, mode] = field("deferred_kib")
		}
		END {
			for (i = 1; i <= n; i++) if (!done[modes[i]]) bad(modes[i] ": the VM ended before its last test")
			for (t = 1; t <= count; t++) {
				name = order[t]; line = sprintf("%-26s", name)
				for (i = 1; i <= n; i++) {
					mode = modes[i]
					line = line sprintf("  %s %s %d", mode, result[name, mode] == "" ? "none" : result[name, mode], passed[name, mode])
					if (deferred[name, mode] + 0 > 0) line = line sprintf(" (%d MiB deferred)", deferred[name, mode] / 1024)
				}
				print line
				for (i = 1; i <= n; i++) if (result[name, modes[i]] !~ /^(pass|skip)$/) printf "      %s: %s\n", modes[i], why[name, modes[i]]
				for (i = 2; i <= n; i++) {
					if (result[name, modes[i]] != result[name, modes[1]] || passed[name, modes[i]] < passed[name, modes[1]])
						bad(name " in " modes[i] " is not as in " modes[1])
				}
			}
			if (!count) bad("no test has run: see guest-kernel/tests/selftests/list for their names")
			exit failed
		}' "${@/#/$keep/}"
}

main() {
	parse "$@"
	[ -x "$bin/flatboot-bench" ] || die "$bin/flatboot-bench is missing: make build"
	vmlinux=$(guest-kernel/build.sh "$kernel")/vmlinux
	initramfs=$(guest-kernel/tests/selftests.sh)/selftests.cpio
	mkdir -p "$keep"
	local mode
	for mode in "${modes[@]}"; do run_mode "$mode"; done
	compare "${modes[@]/%/.console}"
}

main "$@"
