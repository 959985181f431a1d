#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages of flatboot, flatboot-bench and the firmware, and prints the directory that holds them. Takes along
# those of a kernel if DIR is where guest-kernel/cloud.sh has put them. The version is the workspace's.
#
# usage: vmm/debian/build.sh [DIR]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(cd "$here/../.." && pwd)
out=$tree/target/packages

say() { echo "packages: $*" >&2; }

# The same input gives the same bytes: times are those of the last commit, and no path of this machine is in the programs.
SOURCE_DATE_EPOCH=$(git -C "$tree" log -1 --format=%ct 2>/dev/null || date -r "$tree/CHANGELOG.md" +%s)
export SOURCE_DATE_EPOCH TZ=UTC
target=x86_64-unknown-linux-gnu
programs=$tree/target/packaged/$target/release

# Cargo joins these flags with those of .cargo/config.toml, by which programs are static; those of the environment would replace
# them.
run_cargo() {
	local flags="'--remap-path-prefix=$tree=/flatboot', '--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo'"
	(cd "$tree" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS cargo --config "target.$target.rustflags=[$flags]" \
		build --quiet --release --locked --target "$target" --target-dir "$tree/target/packaged" "$@")
}

# The two inits are alone in an initramfs; and any host's C library is good for the other two.
require_static() {
	local program headers
	for program in "$@"; do
		headers=$(readelf --program-headers --wide "$program")
		case $headers in *INTERP*) say "$program: needs a dynamic linker, but must be static" && exit 1 ;; esac
	done
}

build() {
	say "programs and manuals"
	run_cargo --package flatboot --package flatboot-bench --bins
	run_cargo --package flatboot --example manuals
	require_static "$programs"/{flatboot,flatboot-bench,host-init,guest-init}
	say "firmware"
	firmware=$("$tree/firmware/build.sh" release)
}

# Of the crates in the programs.
notices() {
	(cd "$tree" && cargo metadata --format-version 1 --locked --filter-platform "$target") | perl "$here/notices.pl"
}

# What debian/rules installs, beside debian/.
stage() {
	local stage=$1 version
	version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$tree/Cargo.toml")
	mkdir -p "$stage"/{bin,unit,completions,manuals,docs,firmware}
	cp -r "$here" "$stage/debian"
	install -m 755 "$programs"/{flatboot,flatboot-bench,host-init,guest-init} "$stage/bin/"
	"$programs/examples/manuals" "$stage/all"
	"$programs/flatboot-bench" manuals "$stage/all"
	mv "$stage"/all/*.1 "$stage/manuals/"
	mv "$stage"/all/* "$stage/completions/"
	# What bash looks for is called as the command is.
	for program in flatboot flatboot-bench; do
		mv "$stage/completions/$program.bash" "$stage/completions/$program"
	done
	cp "$here/flatboot@.service" "$stage/unit/"
	cp "$here/README" "$tree"/docs/*.md "$stage/docs/"
	cp "$tree/CHANGELOG.md" "$stage/docs/NEWS"
	notices >"$stage/docs/NOTICES"
	cp "$firmware/FLATBOOT.fd" "$stage/firmware/"
	(cd "$stage" && ls manuals/flatboot-bench*.1) >"$stage/debian/flatboot-bench.manpages"
	cat >"$stage/debian/changelog" <<-EOF
		flatboot ($version) unstable; urgency=medium

		  * NEWS beside this file says what is new.

		 -- Flatboot maintainers <maintainers@users.noreply.flatboot.example>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
	EOF
	mkdir -p "$stage/debian/source"
	echo '3.0 (native)' >"$stage/debian/source/format"
}

main() {
	[ $# -le 1 ] || { say "takes one directory at the most, got: $*"; exit 2; }
	[ $# -eq 0 ] || ls "$1"/linux-image-*.deb >/dev/null || { say "$1: has no linux-image-*.deb"; exit 1; }
	mkdir -p "$tree/target"
	exec 9>"$tree/target/packages.lock"
	flock --nonblock 9 || { say "$out: another build writes there; let it end first"; exit 1; }
	# Not in /tmp, where programs may not be allowed to run.
	work=$(mktemp -d -p "$tree/target")
	trap 'rm -rf "$work"' EXIT
	build
	stage "$work/flatboot"
	say "packages"
	(cd "$work/flatboot" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps) >"$work/log" 2>&1 ||
		{ tail -n 30 "$work/log" >&2; say "dpkg-buildpackage failed"; exit 1; }
	rm -rf "$out"
	mkdir -p "$out"
	cp "$work"/*.deb "$out/"
	[ $# -eq 0 ] || cp "$1"/linux-image-*.deb "$out/"
	(cd "$out" && ls -l -- *.deb) | awk '{ printf "packages: %9d bytes  %s\n", $5, $9 }' >&2
	echo "$out"
}

main "$@"
