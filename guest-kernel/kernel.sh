# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# What the scripts that build a kernel, or a part of it, share: what it is made of, patched and configured.
# Sourced like lib.sh, which comes with it.

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# For !(0000-*).patch: the patches of a folder without its cover letter.
shopt -s extglob

patches=()      # of the kernel called $name
fragments=()    # of its configuration

# What the kernel called $name is made of: sets patches and fragments.
describe() {
	local boot=("$here"/patches/boot/!(0000-*).patch) config=$here/config
	local after=("$here"/patches/{hash,elastic,run,fixes}/!(0000-*).patch)
	patches=()
	case $name in
	guest | base | debug | kasan | rt | lockstat)
		patches=("${boot[@]}" "${after[@]}")
		fragments=("$config/base.config")
		[ "$name" = base ] || fragments+=("$config/debian.config")
		fragments+=("$config/marks.config" "$config/handoff.config")
		case $name in
		debug | kasan | rt) fragments+=("$config/selftests.config" "$config/$name.config") ;;
		lockstat) fragments+=("$config/$name.config") ;;
		esac
		;;
	stock)
		patches=("${boot[0]}")
		fragments=("$config/base.config" "$config/debian.config" "$config/marks.config" "$config/stock.config")
		;;
	host)
		patches=("$here"/host/*.patch)
		fragments=("$here/../benches/host/host.config")
		return
		;;
	esac
	[ "${EMULATION:-1}" = 0 ] || fragments+=("$config/emulation.config")
}

# Names the Debian package of the first build tool that is missing.
check_tools() {
	need_tools gcc:gcc make:make ld:binutils flex:flex bison:bison bc:bc perl:perl patch:patch \
		xz:xz-utils lz4:lz4 tar:tar gzip:gzip sha256sum:coreutils flock:util-linux awk:mawk cpio:cpio
	# objtool links with libelf.
	echo '#include <gelf.h>' | gcc -E - >/dev/null 2>&1 ||
		die "gelf.h is not installed: apt-get install libelf-dev"
}

# The content hash of everything that decides what $name will be: the scripts that build it are given.
content_key() {
	{
		echo "$source_id"
		gcc --version
		ld --version
		cat -- "${patches[@]}" "${fragments[@]}" "$here/../benches/build-lib.sh" "$here/lib.sh" "$here/kernel.sh" "$@"
	} | sha256sum | cut -c1-16
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

# Not with another compiler or other flags that the caller's environment has: the key knows nothing of them.
kmake() {
	env -u LLVM -u LLVM_IAS -u CC -u CROSS_COMPILE -u KCFLAGS -u KAFLAGS -u KCPPFLAGS -u LOCALVERSION -u MAKEFLAGS -u MFLAGS \
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
