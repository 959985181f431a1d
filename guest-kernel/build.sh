#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds one of the kernels and prints the directory that holds it (vmlinux, bzImage, config).
set -euo pipefail

program=guest-kernel/build.sh
# shellcheck source-path=SCRIPTDIR source=kernel.sh
. "$(dirname "${BASH_SOURCE[0]}")/kernel.sh"

usage() {
	cat <<EOF
Usage: guest-kernel/build.sh guest|base|stock|debug|kasan|rt|lockstat|host

  guest     the whole series; base, debian and emulation configuration
  base      the whole series; base and emulation configuration
  stock     the boot marks only, configured as guest: what the series is compared with
  debug     guest with every check of memory and locks, and what the mm selftests use
  kasan     guest with KASAN, and what the mm selftests use
  rt        guest with PREEMPT_RT, checks of locks, and what the mm selftests use
  lockstat  guest, which counts how often its locks are taken
  host      the kernel of the emulated KVM host (benches/host/host.config): only what is in host/, for QEMU's emulation

Progress goes to standard error. The last line of standard output is the directory
that holds vmlinux, bzImage and config. Built once per content of all inputs.

Environment:
  KERNEL_SRC=DIR      a clean Linux source tree instead of Debian's package (see BASE)
  EMULATION=0         leave out emulation.config: for kernels that only meet real KVM
  JOBS=N              how many compilers at once (default: the number of processors)
  FLATBOOT_CACHE=DIR  where kernels are kept (default: \$XDG_CACHE_HOME/flatboot, ~/.cache/flatboot)
EOF
}

# The directory appears whole or not at all.
install_result() {
	mkdir "$work/result"
	cp "$work/out/vmlinux" "$work/result/vmlinux"
	cp "$work/out/arch/x86/boot/bzImage" "$work/result/bzImage"
	cp "$work/out/.config" "$work/result/config"
	mv -T "$work/result" "$dest"
}

build() {
	copy_source
	apply_patches
	configure
	run_logged "compiling" kmake -j"${JOBS:-$(nproc)}" vmlinux bzImage
	install_result
}

main() {
	case ${1:-} in
	guest | base | stock | debug | kasan | rt | lockstat | host) name=$1 label="kernel $1" ;;
	-h | --help) usage && exit 0 ;;
	*) die "'${1:-}' is none of guest, base, stock, debug, kasan, rt, lockstat, host (--help says more)" ;;
	esac
	[ $# -eq 1 ] || die "takes one kernel name, got $#: $*"
	begin kernel
	check_tools
	describe
	find_source
	build_once "$(content_key "$here/build.sh")"
}

main "$@"
