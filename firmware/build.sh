#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Builds the firmware image and prints the directory that holds it (FLATBOOT.fd).
set -euo pipefail

program=firmware/build.sh
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../benches/build-lib.sh
. "$here/../benches/build-lib.sh"

usage() {
	cat <<EOF
Usage: firmware/build.sh release|debug|source

  release  what VMs boot
  debug    with EDK2's assertions, and its log on I/O port 0x402 (QEMU: -debugcon file:LOG -global isa-debugcon.iobase=0x402)
  source   only unpacks EDK2 and builds its tools

Progress goes to standard error. The last line of standard output is the directory that holds FLATBOOT.fd, or EDK2.
Built once per content of all inputs.

Environment:
  EDK2_SRC=DIR        an EDK2 $(base RELEASE) tree with built BaseTools instead of Debian's source package (see BASE)
  JOBS=N              how many compilers at once (default: the number of processors)
  FLATBOOT_CACHE=DIR  where images are kept (default: \$XDG_CACHE_HOME/flatboot, ~/.cache/flatboot)
EOF
}

# apt's own lists are left alone: this machine's Debian repositories, as sources, with lists in $work.
apt_source() {
	local sources=$work/sources.list
	# shellcheck disable=SC2016 # apt's own variables
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
		sort -u | sed 's|^|deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] |' >"$sources"
	[ -s "$sources" ] || die "this machine's apt knows no Debian repository: run apt-get update, or set EDK2_SRC"
	mkdir -p "$work/lists/partial"
	apt-get -q -o Dir::Etc::SourceList="$sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists" \
		-o APT::Sandbox::User=root "$@"
}

download() {
	mkdir "$work/download"
	cd "$work/download"
	apt_source update
	apt_source source --download-only "$(base PACKAGE)"
}

# Upstream's tarball is the pinned one; apt has verified the others.
verify() {
	local tarball
	tarball=$work/download/$(base PACKAGE)_$(base RELEASE).orig.tar.xz
	[ -f "$tarball" ] ||
		die "this Debian has $(cd "$work/download" && echo ./*.dsc), BASE is for $(base PACKAGE) $(base RELEASE): set EDK2_SRC"
	echo "$(base SHA256)  $tarball" | sha256sum --quiet --check - >&2 ||
		die "$tarball: not the file that BASE pins"
	[ -f "$work/download/$(base PACKAGE)_$(base TESTED).dsc" ] ||
		say "NOTE: tested with $(base TESTED), this Debian has $(cd "$work/download" && echo ./*.dsc)"
}

unpack() {
	dpkg-source --no-check -x "$work"/download/*.dsc "$work/edk2"
	make -C "$work/edk2/BaseTools/Source/C" -j"${JOBS:-$(nproc)}"
	# Of no use to us, and half of it all.
	rm -rf "$work/edk2"/{CryptoPkg/Library/OpensslLib/openssl,debian,.pc}
	(cd "$work/download" && sha256sum ./*.dsc) >"$work/edk2/debian-source"
}

build_source() {
	run_logged "downloading $(base PACKAGE) $(base RELEASE)" download
	verify
	run_logged "unpacking it and building its tools" unpack
	mv -T "$work/edk2" "$dest"
}

# Sets source to EDK2 with its tools, and source_id, which changes when that does, and so with Debian's revision. Another run of
# this script, with a temporary directory and a lock of its own, builds it.
find_source() {
	if [ -z "${EDK2_SRC:-}" ]; then
		source=$("$here/build.sh" source)
		source_id=$(<"$source/debian-source")
		say "made from ${source_id##*/}"
		return
	fi
	source=$(cd "$EDK2_SRC" 2>/dev/null && pwd) || die "EDK2_SRC=$EDK2_SRC is not a directory"
	[ -x "$source/BaseTools/Source/C/bin/GenFw" ] ||
		die "EDK2_SRC=$EDK2_SRC has no BaseTools/Source/C/bin/GenFw: run make -C BaseTools there first"
	source_id="$source $(tree_id "$source")"
}

build_image() {
	local target=${name^^} guid
	mkdir "$work/Conf"
	for file in target tools_def build_rule; do
		cp "$source/BaseTools/Conf/$file.template" "$work/Conf/$file.txt"
	done
	# A driver has in it the name of the file that it was made from: zeroed, but as long as it is. So a name, and no path.
	# shellcheck disable=SC2016 # variables of EDK2's
	sed -i 's|"$(GENFW)" -e $(MODULE_TYPE) -o ${dst} ${src} |cd $(DEBUG_DIR) \&\& "$(GENFW)" -e $(MODULE_TYPE) -o ${dst} $(MODULE_NAME).dll |' \
		"$work/Conf/build_rule.txt"
	# shellcheck disable=SC2016 # likewise
	grep -qF 'cd $(DEBUG_DIR) && ' "$work/Conf/build_rule.txt" ||
		die "$source/BaseTools/Conf/build_rule.template: has no line that GenFw makes a driver by: must be as in $(base RELEASE)"
	# EDK2 finds the program for a section by its GUID, in lower case.
	guid=$(sed -n 's/^ *SECTION GUIDED \([^ ]*\) .*/\L\1/p' "$here/FlatbootPkg/FlatbootX64.fdf")
	cat >>"$work/Conf/tools_def.txt" <<-EOF
		*_*_*_STORED_PATH = $here/FlatbootPkg/Tools/store.sh
		*_*_*_STORED_GUID = $guid
	EOF
	run_logged "compiling" edk2_build "$target"
	mkdir "$work/result"
	cp "$work/Build/FlatbootX64/${target}_GCC5/FV/FLATBOOT.fd" "$work/result/"
	mv -T "$work/result" "$dest"
}

edk2_build() {
	cd "$work"
	# env, as EDK2's program is called build, too. It goes through sets, whose order has to be the same each time.
	env PYTHONHASHSEED=0 WORKSPACE="$work" CONF_PATH="$work/Conf" EDK_TOOLS_PATH="$source/BaseTools" PACKAGES_PATH="$here:$source" \
		PYTHON_COMMAND=python3 GCC5_BIN= PATH="$source/BaseTools/BinWrappers/PosixLike:$PATH" \
		build -a X64 -t GCC5 -b "$1" -p FlatbootPkg/FlatbootX64.dsc -n "${JOBS:-$(nproc)}"
}

# What decides how the image will be.
content_key() {
	{
		gcc --version
		ld --version
		nasm -v
		echo "$source_id"
		cd "$here"
		find FlatbootPkg -name Test -prune -o -name UnitTest -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
		cat BASE build.sh ../benches/build-lib.sh
	} | sha256sum | cut -c1-16
}

build() {
	if [ "$name" = edk2 ]; then build_source; else build_image; fi
}

main() {
	case ${1:-} in
	release | debug) name=$1 label="firmware $1" ;;
	source) name=edk2 label="firmware source" ;;
	-h | --help) usage && exit 0 ;;
	*) die "'${1:-}' is none of release, debug, source (--help says more)" ;;
	esac
	[ $# -eq 1 ] || die "takes one name, got $#: $*"
	need_tools gcc:gcc g++:g++ make:make nasm:nasm python3:python3 dpkg-source:dpkg-dev sha256sum:coreutils flock:util-linux
	begin firmware
	if [ "$name" = edk2 ]; then
		build_once "$({ gcc --version; cat "$here/BASE" "$here/build.sh"; } | sha256sum | cut -c1-16)"
	else
		find_source
		build_once "$(content_key)"
	fi
}

main "$@"
