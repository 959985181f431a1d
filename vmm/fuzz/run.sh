#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets and runs them one after another, each for the same time.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")"

root=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}
# Where make puts it.
cargo_fuzz=$root/tools/bin/cargo-fuzz
[ -x "$cargo_fuzz" ] || cargo_fuzz=cargo-fuzz
seconds=300 cache=$root/fuzz input='' check=0 keep=0 targets=()
build=${CARGO_TARGET_DIR:-$PWD/target}
# Seconds between two lines that say how far it is.
pace=15
total=0
child=''

usage() {
	cat <<EOT
Usage: vmm/fuzz/run.sh [--seconds N] [--cache DIR] [--cargo-fuzz FILE] [--check] [--keep]
                       [--input FILE] [TARGET]...

  TARGET             a file in vmm/fuzz/fuzz_targets, without .rs (default: all of them)
  --seconds N        for all targets together (default: $seconds)
  --cache DIR        where inputs that are found go (default: $cache)
  --cargo-fuzz FILE  what builds the targets (default: $cargo_fuzz)
  --check            look at these words, and do nothing
  --keep             make vmm/fuzz/corpus/TARGET anew, of few inputs that reach all that any known one does
  --input FILE       run the one TARGET with this input, once

Starts from the inputs in vmm/fuzz/corpus/TARGET and in DIR/corpus/TARGET, which gets what is found. Prints a line for each
target and one for all. What crashes a target ends it: exit status 1, and a line that says how to repeat it.
EOT
}

die() {
	printf 'vmm/fuzz/run.sh: %s\n' "$*" >&2
	exit "${status:-2}"
}

names() { basename -s .rs fuzz_targets/*.rs; }

parse() {
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help)
			usage
			exit 0
			;;
		--check) check=1 && shift ;;
		--keep) keep=1 && shift ;;
		--seconds | --cache | --cargo-fuzz | --input)
			[ $# -ge 2 ] || die "$1: a value is missing"
			local name=${1#--}
			printf -v "${name//-/_}" '%s' "$2"
			shift 2
			;;
		-*) die "'$1': no such option (--help says more)" ;;
		*) targets+=("$1") && shift ;;
		esac
	done
	require
}

require() {
	local target known
	mapfile -t known < <(names)
	for target in ${targets[@]+"${targets[@]}"}; do
		[[ " ${known[*]} " == *" $target "* ]] || die "TARGETS=$target: there is no such target: must be of ${known[*]}"
	done
	[[ -z $input || $input == /* ]] || input=$from/$input
	[[ $cache == /* ]] || cache=$from/$cache
	if [ -n "$input" ]; then
		[ ${#targets[@]} -eq 1 ] || die "INPUT=$input: must be with one target in TARGETS, of ${known[*]}"
		[ -f "$input" ] || die "INPUT=$input: there is no such file: must exist"
	fi
	[ ${#targets[@]} -gt 0 ] || targets=("${known[@]}")
	[[ $seconds =~ ^[1-9][0-9]{0,6}$ ]] || die "SECONDS=$seconds: must be a number of seconds, from 1 to 9999999"
	[ "$seconds" -ge ${#targets[@]} ] || die "SECONDS=$seconds: must be one for each of ${#targets[@]} targets at least"
}

# Sanitizers and coverage are options of the compiler that it has on stable, too, and hides.
compile() {
	local target=$1 log=$cache/$1.build.log
	echo "==> building $target" >&2
	# cargo-fuzz would bring the file up to date, and say nothing.
	cargo tree --quiet --locked >/dev/null 2>"$log" ||
		status=1 die "vmm/fuzz/Cargo.lock is out of date: must be made by 'cargo update --workspace' in vmm/fuzz, and committed ($log says more)"
	RUSTC_BOOTSTRAP=1 "$cargo_fuzz" fuzz build --fuzz-dir . --target-dir "$build" "$target" >"$log" 2>&1 ||
		status=1 die "$target: cannot be built: $(grep -m 1 '^error' "$log" || tail -n 1 "$log") ($log says more)"
}

program() { echo "$build/x86_64-unknown-linux-gnu/release/$1"; }

# The last line in which a log says how far it is: "#executions EVENT cov: edges ft: … corp: inputs/size …".
last() { tail -c 65536 "$1" | grep -a '^#[0-9].*cov: ' | tail -n 1; }

told() {
	sed -nE 's,^#([0-9]+).* cov: ([0-9]+) .* corp: ([0-9]+)/([0-9]+[KMG]?b) .*,\1 executions\, coverage \2\, corpus \3 inputs of \4,p'
}

watch() {
	local target=$1 log=$2 begun=$SECONDS next=$pace now
	while kill -0 "$child" 2>/dev/null; do
		sleep 1
		if [ $((SECONDS - begun)) -ge $next ]; then
			now=$(last "$log" | told) || true
			printf '[%5ds] %s: %s\n' $((SECONDS - begun)) "$target" "${now:-reads its corpus}" >&2
			next=$((next + pace))
		fi
	done
}

fuzz() {
	local target=$1 time=$2 log=$cache/$1.log own=$cache/corpus/$1 words=() seeds=() crashed count
	mkdir -p "$own" "$cache/artifacts/$target"
	[ ! -d "corpus/$target" ] || seeds=("corpus/$target")
	case $target in
	# Both read JSON and text.
	api_request | vm_config) words=(-dict=words.dict) ;;
	snapshot_state) words=(-dict=state.dict) ;;
	esac
	ASAN_OPTIONS=detect_odr_violation=0 "$(program "$target")" -max_total_time="$time" -print_final_stats=1 -print_funcs=0 -timeout=60 \
		-artifact_prefix="$cache/artifacts/$target/" "${words[@]}" "$own" "${seeds[@]}" >"$log" 2>&1 &
	child=$!
	watch "$target" "$log"
	if ! wait "$child"; then
		crashed=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
		status=1
		[ -n "$crashed" ] || die "$target: ended before its time: $(tail -n 1 "$log") ($log says more)"
		die "$target: crashed by $crashed; make fuzz TARGETS=$target INPUT=$crashed repeats it"
	fi
	child=''
	count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	[ -n "$count" ] || status=1 die "$target: says no number of executions ($log says more)"
	total=$((total + count))
	printf '%-14s %s, %d seconds\n' "$target" "$(last "$log" | told)" "$time"
}

# What reaches a branch counts, how often it does not: that would be hundreds of inputs.
keep() {
	local target=$1 kept=$cache/kept/$1 log=$cache/$1.keep.log
	rm -rf -- "$kept"
	mkdir -p "$kept" "corpus/$target" "$cache/corpus/$target"
	"$(program "$target")" -set_cover_merge=1 -use_counters=0 "$kept" "corpus/$target" "$cache/corpus/$target" >"$log" 2>&1 ||
		status=1 die "$target: its inputs cannot be merged: $(tail -n 1 "$log") ($log says more)"
	rm -rf -- "corpus/$target"
	mv -- "$kept" "corpus/$target"
	find "corpus/$target" -type f -printf '%s\n' | awk '{ bytes += $1 } END { print name ": " NR " inputs, " bytes " bytes" }' name="$target"
}

main() {
	parse "$@"
	[ $check -eq 0 ] || exit 0
	mkdir -p "$cache"
	# It hears no Ctrl-C of its own.
	trap '[ -z "$child" ] || kill "$child" 2>/dev/null || true' EXIT
	trap 'exit 130' INT TERM
	local target time=$((seconds / ${#targets[@]}))
	for target in "${targets[@]}"; do compile "$target"; done
	if [ -n "$input" ]; then exec "$(program "${targets[0]}")" "$input"; fi
	if [ $keep -eq 1 ]; then
		for target in "${targets[@]}"; do keep "$target"; done
		exit 0
	fi
	for target in "${targets[@]}"; do fuzz "$target" "$time"; done
	echo "in all         $total executions, ${#targets[@]} targets, no crash"
}

main "$@"
