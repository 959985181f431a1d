#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Checks the series without building a kernel: it applies to the base without fuzz, checkpatch.pl has
# nothing to say, the headers in it are the generated ones, and the hand-off's parser and the comparisons of fast paths and
# of configurations pass their tests.
set -euo pipefail
# For !(0000-*).patch: the patches of a folder without its cover letter.
shopt -s extglob

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failures=0

# What checkpatch.pl --strict may say all the same.
ignored=(
	FILE_PATH_CHANGES         # asks for MAINTAINERS entries, which a series outside the tree cannot have
	AVOID_BUG                 # BUG_ON()s that were there before are indented, no new one is added
	BAD_SIGN_OFF              # knows no address under .example
	CAMELCASE                 # __SetPageReserved() and its like are upstream's
	CONFIG_DESCRIPTION        # wants four lines of help text in the patch's context
	LOGGING_CONTINUATION      # show_free_areas() prints its lines in pieces, and so do we
	PREFER_PR_LEVEL           # as does the line that is changed there
)

die() {
	printf 'guest-kernel/check.sh: %s\n' "$*" >&2
	exit 1
}

failed() {
	printf 'FAILED  %s\n' "$*"
	failures=$((failures + 1))
}

passed() { printf 'ok      %s\n' "$*"; }

base() { sed -n "s/^$1=//p" "$here/BASE"; }

# Only what the patches touch, and checkpatch.pl with its word lists, goes to $work/src.
unpack_base() {
	local files=(scripts/checkpatch.pl scripts/spelling.txt scripts/const_structs.checkpatch Makefile)
	local touched
	# Not what an earlier patch of the series created: the base does not have it.
	mapfile -t touched < <(awk '
		/^--- a\// && !(substr($2, 3) in created) { print substr($2, 3) }
		/^--- / { old = $2 }
		/^\+\+\+ b\// && old == "/dev/null" { created[substr($2, 3)] }' "${patches[@]}" | sort -u)
	files+=("${touched[@]}")
	mkdir "$work/src"
	if [ -n "${KERNEL_SRC:-}" ]; then
		[ -f "$KERNEL_SRC/scripts/checkpatch.pl" ] || die "KERNEL_SRC=$KERNEL_SRC is not a Linux source tree"
		(cd "$KERNEL_SRC" && tar -cf - "${files[@]}") | tar -xf - -C "$work/src"
		return
	fi
	local tarball
	tarball=$(base TARBALL)
	[ -r "$tarball" ] || die "$tarball is missing: apt-get install $(base PACKAGE), or set KERNEL_SRC"
	tar -xf "$tarball" -C "$work/src" --strip-components=1 "${files[@]/#/$(base PACKAGE)/}" ||
		die "$tarball lacks a file that the series changes"
}

check_apply() {
	local p
	for p in "${patches[@]}"; do
		if patch -d "$work/src" -p1 --batch --forward --fuzz=0 <"$p" >"$work/patch.log" 2>&1; then
			passed "${p##*/} applies"
		else
			failed "${p##*/} does not apply:"
			cat "$work/patch.log"
			return 1
		fi
	done
}

# Patches that stand alone apply to the base without the others.
check_alone() {
	local p
	cp -r "$work/src" "$work/alone"
	for p in "$here"/patches/{hash,fixes}/[0-9]*.patch; do
		patch -d "$work/alone" -p1 --batch --forward --fuzz=0 <"$p" >"$work/patch.log" 2>&1 && continue
		failed "${p##*/} does not apply to the base alone:"
		cat "$work/patch.log"
		return
	done
	passed "patches/hash and patches/fixes apply to the base alone"
}

check_headers() {
	local h
	for h in "$here"/include/linux/*.h "$here"/include/uapi/linux/*.h; do
		if cmp -s "$h" "$work/src/include/${h#"$here"/include/}"; then
			passed "${h##*/} in the series is the generated one"
		else
			failed "${h##*/}: the series and guest-kernel/include differ"
		fi
	done
}

# Debian's configuration knows no option of the series, so cloud.sh takes one that no fragment asks for as a difference from it.
check_options() {
	local option missing=0
	while read -r option; do
		grep -q "^CONFIG_$option=" "$here"/config/*.config && continue
		failed "CONFIG_$option: the series adds it, and no file in guest-kernel/config asks for it"
		missing=1
	done < <(sed -n 's/^+config //p' "${patches[@]}")
	[ "$missing" -ne 0 ] || passed "each option of the series is in guest-kernel/config"
}

check_style() {
	local p types
	types=$(IFS=, && echo "${ignored[*]}")
	for p in "${patches[@]}"; do
		# There, as it leaves a cache where it runs.
		if cd "$work" && perl "$work/src/scripts/checkpatch.pl" --no-tree --strict --quiet --no-summary --ignore "$types" "$p" \
			>"$work/style.log" 2>/dev/null; then
			passed "${p##*/} has no style problem"
		else
			failed "${p##*/} has style problems:"
			cat "$work/style.log"
		fi
	done
}

# check_series DIR FIRST: contiguous numbers from FIRST on, one author who signed off.
check_series() {
	local i=$2 p before=$failures
	for p in "$1"/*.patch; do
		[ "$(printf '%04d' "$i")" = "$(basename "$p" | cut -c1-4)" ] || failed "${p##*/}: number $i was expected"
		grep -q '^From: Flatboot maintainers <' "$p" || failed "${p##*/}: not from the maintainers"
		[ "$i" -eq 0 ] || grep -q '^Signed-off-by: Flatboot maintainers <' "$p" || failed "${p##*/}: not signed off"
		i=$((i + 1))
	done
	[ "$failures" -ne "$before" ] || passed "the series ${1##*/} is complete: $((i - 1)) patches"
}

# Runs the test $1, whose last line of output says what has passed. $2: what it is a test of.
check_by() {
	if "$here/tests/$1" >"$work/test.log" 2>&1; then
		passed "$(tail -n 1 "$work/test.log")"
	else
		failed "$2:"
		cat "$work/test.log"
	fi
}

main() {
	local tool
	for tool in patch perl tar xz cmp; do
		command -v "$tool" >/dev/null || die "$tool is not installed"
	done
	patches=("$here"/patches/{boot,hash,elastic,run,fixes}/!(0000-*).patch)
	[ -f "${patches[0]:-}" ] || die "there are no patches in $here/patches/boot"
	work=$(mktemp -d)
	trap 'rm -rf -- "$work"' EXIT
	unpack_base
	check_series "$here/patches/boot" 0
	check_series "$here/patches/hash" 1
	check_series "$here/patches/elastic" 0
	check_series "$here/patches/run" 0
	check_series "$here/patches/fixes" 1
	check_alone
	check_apply && check_headers
	check_options
	check_style
	check_by run.sh "the hand-off's parser"
	check_by fast-path-test.sh 'the comparison of fast paths'
	check_by cloud-core-test.sh 'the comparison of configurations'
	[ "$failures" -eq 0 ] || die "$failures checks failed"
}

main "$@"
