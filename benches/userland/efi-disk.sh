#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a cloud-style disk that UEFI firmware boots: GPT, an EFI system partition with a unified kernel image, a root partition.
#
#   efi-disk.sh ROOT.ext4 BZIMAGE [INITRAMFS]    the last line on standard output is the directory that holds disk.img
#
# The unified kernel image is systemd's stub (package systemd-boot-efi) with the kernel and its command line as sections; it
# is /EFI/BOOT/BOOTX64.EFI, where firmware looks on a disk that it does not know. Nothing is mounted, no root is needed.
#
# Cache: ${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/rootfs/efi-<hash of all that goes in>/disk.img
set -euo pipefail

program=benches/userland/efi-disk.sh
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../build-lib.sh
. "$here/../build-lib.sh"

STUB=/usr/lib/systemd/boot/efi/linuxx64.efi.stub
ESP_MIB=64
SECTOR=512
# Identities of the partitions (GPT): the kernel finds its root by the second.
ESP_UUID=f1a7b007-0000-4000-8000-0000000000e5
ROOT_UUID=f1a7b007-0000-4000-8000-000000000013
# What flatboot itself adds to the command line of a kernel that it loads; here nobody does.
CMDLINE="root=PARTUUID=$ROOT_UUID rw rootfstype=ext4 quiet loglevel=3 console=ttyS0 swiotlb=noforce io_delay=none pci=off"

# Sections of a PE image go where nothing is: the stub is smaller than the first address, the kernel comes last.
unified_kernel() {
	printf '%s' "$CMDLINE" >"$work/cmdline"
	printf 'ID=flatboot\nPRETTY_NAME="Debian 12 under flatboot"\n' >"$work/os-release"
	local more=()
	# Behind the largest kernel that there is.
	[ -z "$initramfs" ] || more=(--add-section .initrd="$initramfs" --change-section-vma .initrd=0x8000000)
	objcopy "${more[@]}" \
		--add-section .osrel="$work/os-release" --change-section-vma .osrel=0x20000 \
		--add-section .cmdline="$work/cmdline" --change-section-vma .cmdline=0x30000 \
		--add-section .linux="$kernel" --change-section-vma .linux=0x2000000 \
		"$STUB" "$work/uki.efi"
}

esp() {
	truncate -s "${ESP_MIB}M" "$work/esp.img"
	# The same input gives the same file system.
	SOURCE_DATE_EPOCH=0 mkfs.vfat --invariant -F 32 -S "$SECTOR" -n ESP "$work/esp.img"
	mmd -i "$work/esp.img" ::/EFI ::/EFI/BOOT
	mcopy -i "$work/esp.img" "$work/uki.efi" ::/EFI/BOOT/BOOTX64.EFI
}

# A MiB for each copy of the partition table, at the start and at the end.
assemble() {
	local esp_sectors=$((ESP_MIB * 2048)) root_sectors=$(($(stat -c %s "$root") / SECTOR))
	local root_start=$((2048 + esp_sectors))
	mkdir "$work/result"
	local disk=$work/result/disk.img
	truncate -s $(((root_start + root_sectors + 2048) * SECTOR)) "$disk"
	sfdisk --quiet --no-reread --no-tell-kernel "$disk" <<-EOF
		label: gpt
		start=2048, size=$esp_sectors, type=uefi, uuid=$ESP_UUID, name=ESP
		start=$root_start, size=$root_sectors, type=4f68bce3-e8cd-4db1-96e7-fbcaf984b709, uuid=$ROOT_UUID, name=root
	EOF
	dd if="$work/esp.img" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none
	dd if="$root" of="$disk" bs=1M seek=$((root_start / 2048)) conv=notrunc,sparse status=none
}

make_disk() {
	unified_kernel
	esp
	assemble
}

build() {
	run_logged "making the disk" make_disk
	mv -T "$work/result" "$dest"
}

main() {
	[ $# -eq 2 ] || [ $# -eq 3 ] || die "takes a root file system's image, a bzImage and perhaps an initramfs, got $#: $*"
	root=$1 kernel=$2 initramfs=${3-}
	local file
	for file in "$root" "$kernel" "$STUB" ${initramfs:+"$initramfs"}; do
		[ -r "$file" ] || die "$file: cannot be read (the stub is Debian's package systemd-boot-efi)"
	done
	PATH=$PATH:/usr/sbin:/sbin
	need_tools objcopy:binutils mkfs.vfat:dosfstools mcopy:mtools sfdisk:fdisk sha256sum:coreutils flock:util-linux
	name=efi label="EFI disk"
	begin rootfs
	# Most inputs are in caches by content. What was made anew under the same path is another file, of another time.
	build_once "$({ stat -c '%n %i %s %y' -- "$root" "$kernel" ${initramfs:+"$initramfs"}; sha256sum <"$STUB"; cat "${BASH_SOURCE[0]}"; } |
		sha256sum | cut -c1-16)"
}

main "$@"
