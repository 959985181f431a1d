#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a task needs and this machine lacks, and says which.
#
# usage: benches/packages.sh TASK...      TASK: kernel | cloud | firmware | host | rootfs | esp | net | browser | stress | work | slurm | packages | check | fuzz
set -euo pipefail

packages_of() {
	case $1 in
	kernel) echo linux-source-6.12 gcc make flex bison bc cpio perl xz-utils lz4 libelf-dev libssl-dev ;;
	cloud) echo linux-config-6.12 dpkg-dev debhelper kmod rsync zstd ;;
	firmware) echo dpkg-dev gcc g++ make python3 nasm uuid-dev libcmocka-dev ;;
	host) echo qemu-system-x86 ;;
	rootfs) echo debootstrap e2fsprogs ;;
	esp) echo systemd-boot-efi binutils dosfstools mtools fdisk ;;
	net) echo passt openssh-client ;;
	browser) echo chromium ;;
	stress) echo stress-ng ;;
	packages) echo dpkg-dev debhelper lintian ;;
	work) echo debootstrap e2fsprogs iproute2 iperf3 ;;
	slurm) echo slurmctld slurmd slurm-client munge ;;
	check) echo shellcheck ;;
	fuzz) echo g++ ;;
	*)
		echo "packages.sh: task '$1': must be kernel, cloud, firmware, host, rootfs, esp, net, browser, stress, work, slurm, packages, check or fuzz" >&2
		return 2
		;;
	esac
}

is_installed() {
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "packages.sh: installing packages needs root, and there is no sudo; as root: $*" >&2
		return 1
	fi
}

# Says every few seconds what the last line of LOG is, until it is ended.
tell() {
	local began=$SECONDS
	trap 'kill $!; exit' TERM
	while sleep 5 & wait $!; do
		printf '    %ds: %.80s\n' $((SECONDS - began)) "$(tail -n 1 "$1")" >&2
	done
}

# Runs "$@". What it prints is shown only if it fails. In the foreground, unlike run_logged() of build-lib.sh: sudo may ask
# for a password, and Ctrl-C is apt's to handle.
quietly() {
	local rc=0
	log=$(mktemp)
	tell "$log" &
	teller=$!
	trap 'kill "$teller"; rm "$log"' EXIT
	"$@" >"$log" 2>&1 || rc=$?
	[ "$rc" -eq 0 ] || cat "$log" >&2
	return "$rc"
}

main() {
	local task package wanted missing=()
	if ! command -v dpkg-query >/dev/null; then
		echo "packages.sh: not a Debian machine; make sure that these are there by other means:" >&2
		for task in "$@"; do packages_of "$task" >&2; done
		return 0
	fi
	for task in "$@"; do
		wanted=$(packages_of "$task")
		for package in $wanted; do
			is_installed "$package" || missing+=("$package")
		done
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	echo "==> installing Debian packages: ${missing[*]}" >&2
	(quietly as_root apt-get update -q)
	(quietly as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}")
}

main "$@"
