#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds Debian's kernel for clouds with the series, as packages, and prints the directory that holds them.
set -euo pipefail

program=guest-kernel/cloud.sh
# shellcheck source-path=SCRIPTDIR source=kernel.sh
. "$(dirname "${BASH_SOURCE[0]}")/kernel.sh"

cloud_usage() {
	cat <<EOF
Usage: guest-kernel/cloud.sh

Debian's own configuration for clouds (package $(base CONFIG_PACKAGE)) with the whole series. What is of the core is as Debian
has it, which is checked; config/cloud.config says what is left out. The last line of standard output is the directory
with linux-image-*.deb and linux-headers-*.deb, vmlinux, bzImage, config, and modules/RELEASE/: by which a VM finds its disk.
Built once per content of all inputs.

Environment: KERNEL_SRC, JOBS, FLATBOOT_CACHE as of guest-kernel/build.sh
  EMULATION=0         leave jump labels in: for kernels that only meet real KVM
EOF
}

describe_cloud() {
	name=guest
	describe
	name=cloud label="kernel cloud"
	debian_config=$(base CONFIG_FILE)
	[ -r "$debian_config" ] || die "$debian_config is missing: apt-get install $(base CONFIG_PACKAGE)"
	fragments=("$here/config/cloud.config" "$here/config/marks.config" "$here/config/handoff.config")
	[ "${EMULATION:-1}" = 0 ] || fragments+=("$here/config/emulation.config")
}

configure_cloud() {
	say "configuring"
	mkdir "$work/out"
	xz -dc "$debian_config" >"$work/debian.config"
	(cd "$work/out" && "$work/src/scripts/kconfig/merge_config.sh" -m -O "$work/out" "$work/debian.config" "${fragments[@]}") \
		>>"$work/log" 2>&1 || die "merge_config.sh failed on ${fragments[*]}"
	run_logged "resolving the configuration" kmake olddefconfig
	check_config
	perl "$here/cloud-core.pl" "$work/src" "$work/debian.config" "$work/out/.config" "${fragments[@]}" >&2 ||
		die "the core of the configuration is not Debian's"
}

# By which a VM finds its disk and its host.
boot_modules='virtio_mmio virtio_pci virtio_blk virtio-rng pvpanic-mmio'

# Copies them from the package, plain; the file order says in which order they can be loaded.
copy_boot_modules() {
	local root=$work/root release wanted path file to
	dpkg-deb -x "$work"/result/linux-image-*.deb "$root"
	release=$(ls "$root/lib/modules")
	depmod --basedir "$root" "$release"
	to=$work/result/modules/$release
	mkdir -p "$to"
	for wanted in $boot_modules; do
		modprobe --dirname "$root" --set-version "$release" --show-depends "$wanted" >>"$work/order" ||
			die "the package has no module $wanted"
	done
	awk '$1 == "insmod" && !seen[$2]++ { print $2 }' "$work/order" | while read -r path; do
		file=$(basename "$path" .xz)
		xz -dc "$path" >"$to/$file"
		echo "$file"
	done >"$to/order"
}

# The packages of the same inputs are the same: the changelog, whose date all their files get, does not say when and where.
fix_changelog() {
	local script=$work/src/scripts/package/mkdebian
	unset SOURCE_DATE_EPOCH
	# shellcheck disable=SC2016 # for that script to expand
	sed -i 's/\$(date -R)/$(date -u -R -d "$KBUILD_BUILD_TIMESTAMP")/' "$script"
	grep -qF KBUILD_BUILD_TIMESTAMP "$script" || die "mkdebian has another date than it had"
}

build() {
	local version
	copy_source
	apply_patches
	fix_changelog
	configure_cloud
	version=$(kmake -s --no-print-directory kernelversion)
	run_logged "compiling the kernel and its modules" kmake -j"${JOBS:-$(nproc)}" bzImage modules
	run_logged "packing" kmake KDEB_PKGVERSION="$version-1" KDEB_COMPRESS=zstd DPKG_FLAGS=-d \
		KDEB_CHANGELOG_DIST=unstable DEBFULLNAME=flatboot DEBEMAIL=flatboot@flatboot -j"${JOBS:-$(nproc)}" bindeb-pkg
	mkdir "$work/result"
	cp "$work"/linux-image-*.deb "$work"/linux-headers-*.deb "$work/result/"
	cp "$work/out/vmlinux" "$work/out/arch/x86/boot/bzImage" "$work/result/"
	cp "$work/out/.config" "$work/result/config"
	copy_boot_modules
	mv -T "$work/result" "$dest"
}

cloud_main() {
	case ${1:-} in
	'') ;;
	-h | --help) cloud_usage && exit 0 ;;
	*) die "'$1': takes no arguments (--help says more)" ;;
	esac
	begin kernel
	# depmod and modprobe, which the path of most users has not.
	PATH=$PATH:/usr/sbin:/sbin
	check_tools
	need_tools dpkg-deb:dpkg dh_listpackages:debhelper modprobe:kmod rsync:rsync zstd:zstd
	describe_cloud
	find_source
	build_once "$(content_key "$here/cloud.sh" "$here/cloud-core.pl" "$debian_config")"
}

cloud_main "$@"
