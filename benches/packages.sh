#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a task needs and this machine lacks, and says which.
#
# usage: benches/packages.sh TASK...      TASK: kernel | cloud | firmware | host | rootfs | esp | net | browser | stress | work | slurm | packages | check | fuzz
set -euo pipefail

packages_of() {
	case $1 in
	kernel) echo linux-source-6.12 patch gcc make flex bison bc cpio perl xz-utils lz4 libelf-dev libssl-dev ;;
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
	check) echo git shellcheck ;;
	fuzz) echo g++ ;;
	*)
		echo "packages.sh: task '$1': must be kernel, cloud, firmware, host, rootfs, esp, net, browser, stress, work, slurm, packages, check or fuzz" >&2
		return 2
		;;
	esac
}

# One of another architecture is none.
is_installed() {
	dpkg-query -W -f='${db:Status-Status} ${Architecture}\n' "$1" 2>/dev/null |
		grep -qxE "installed (all|$(dpkg --print-architecture))"
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Says every few seconds what the last line of LOG is, until it is ended.
tell() {
	local began=$SECONDS
	trap 'kill $!; exit' TERM
	while sleep 5 & wait $!; do
		printf '    %ds: %.80s\n' $((SECONDS - began)) "$(tail -n 1 "$1")" >&2
	done
}

# Runs "$@", with what it prints in $log. In the foreground, unlike run_logged() of build-lib.sh: sudo may ask for a password,
# and Ctrl-C is apt's to handle. Without the lock: what is installed may leave a daemon running.
logged() (
	tell "$log" 9>&- &
	teller=$!
	trap 'kill "$teller"' EXIT
	"$@" >"$log" 2>&1 9>&-
)

# What apt knows is mostly good enough if this fails. A machine that has just been started may be at it by itself, for minutes.
update() {
	local until=$((SECONDS + 300)) told=
	while ! logged as_root env LC_ALL=C apt-get update -q; do
		if ! grep -q 'Could not get lock' "$log" || [ "$SECONDS" -ge "$until" ]; then
			cat "$log" >&2
			echo 'packages.sh: apt-get update has failed; going on with what apt knows' >&2
			return
		fi
		[ -n "$told" ] || echo '    apt is busy with something else; waiting for it, 5 minutes at the most' >&2
		told=1
		sleep 10
	done
}

# Packages of the tasks that are not there, in `missing`.
find_missing() {
	local task package wanted
	missing=()
	for task in "$@"; do
		wanted=$(packages_of "$task")
		for package in $wanted; do
			is_installed "$package" || missing+=("$package")
		done
	done
}

# One at a time: whoever waited may find nothing left to do.
lock() {
	local cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}
	mkdir -p "$cache"
	exec 9>"$cache/packages.lock"
	flock -n 9 || { echo '    another task is installing packages; waiting for it' >&2; flock 9; }
}

main() {
	local task
	if ! command -v dpkg-query >/dev/null; then
		echo "packages.sh: not a Debian machine; make sure that these are there by other means:" >&2
		for task in "$@"; do packages_of "$task" >&2; done
		return 0
	fi
	find_missing "$@"
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
		echo "packages.sh: installing packages needs root, and there is no sudo; as root: apt-get update; apt-get install ${missing[*]}" >&2
		return 1
	fi
	lock
	find_missing "$@"
	[ ${#missing[@]} -gt 0 ] || return 0
	echo "==> installing Debian packages: ${missing[*]}" >&2
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	update
	logged as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends "${missing[@]}" || { cat "$log" >&2; return 1; }
}

main "$@"
