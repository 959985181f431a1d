#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian 12 root disk: a raw ext4 image with systemd, a login on the serial console, and nothing slow. Where
# the VM has a network interface, that gets an address by DHCP, and root can log in by ssh, without a password.
#
#   debian.sh              builds it, or takes it from the cache; the last line on standard output is its path
#   debian.sh KERNEL.deb   the same with this kernel's package installed; initrd.img, which that has made, lies beside it
#   debian.sh --work       another one, with programs that keep a VM at work: fio, iperf3, nginx, python3, socat, stress-ng;
#                          none of them starts by itself
#
# The image is made from a directory by mke2fs -d, without mounting anything. Only debootstrap needs root, because it
# creates device nodes and enters the new system; without root this asks sudo. Packages come from the mirror that this
# machine's apt uses for Debian 12, else from debootstrap's own default.
#
# Cache: ${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/rootfs/debian-12-[work-]<hash of this script, and of the
# package if there is one>/root.ext4
# Remove that directory to build anew with newer packages.
set -eu

SUITE=bookworm
SIZE_MIB=1024
WORK_MIB=2048
PACKAGES=systemd-sysv,udev,dbus,libpam-systemd,procps,iproute2,openssh-server,systemd-resolved
# With --work.
WORK_PACKAGES=fio,iperf3,nginx-light,python3-minimal,socat,stress-ng
# With a kernel that has its drivers in modules.
KERNEL_PACKAGES=initramfs-tools,kmod,zstd
# The same input gives the same file-system identity.
UUID=f1a7b007-0000-4000-8000-000000000012

say() { echo "debian.sh: $*" >&2; }
die() { say "$*"; exit 1; }

main() {
    [ $# -le 1 ] || die "takes one kernel's package, or --work, at the most, got $#: $*"
    work_packages=
    if [ "${1-}" = --work ]; then
        shift
        work_packages=$WORK_PACKAGES SIZE_MIB=$WORK_MIB
    fi
    [ $# -eq 0 ] || [ -r "$1" ] || die "$1: cannot be read: must be a kernel's package, a .deb, or --work"
    package=${1-}
    for tool in debootstrap mke2fs flock setsid sha256sum; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null ||
            die "$tool: not found (Debian: apt-get install debootstrap e2fsprogs util-linux coreutils)"
    done
    cache=${FLATBOOT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flatboot}/rootfs
    name=debian-12-${work_packages:+work-}$(cat "$0" ${package:+"$package"} | sha256sum | cut -c1-16)
    mkdir -p "$cache" || die "$cache: cannot make it"
    # One build at a time; whoever waited finds the result.
    exec 9>"$cache/lock"
    flock -n 9 || { say "waiting for another build"; flock 9; }
    if [ ! -f "$cache/$name/root.ext4" ]; then
        build
    fi
    echo "$cache/$name/root.ext4"
}

build() {
    start=$(date +%s)
    # We hold the lock, so whatever an earlier build left when it was killed is ours.
    for left in "$cache"/building-*; do
        [ ! -e "$left" ] || clean "$left"
    done
    work=$(mktemp -d "$cache/building-XXXXXXXX")
    # shellcheck disable=SC2064 # the directory of now
    trap "clean '$work'" EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    mkdir "$work/out"
    say "building Debian 12 ($SUITE); about two minutes, and 150 MB of packages"
    mirror=$(apt_mirror)
    # In a session of its own, which clean() ends: what a script starts in the background ignores Ctrl-C.
    as_root setsid --wait sh "$0" --tree "$work/tree" "$mirror" "$package" "$work_packages" >"$work/log" 2>&1 9>&- &
    follow $! "$work/log"
    [ -z "$package" ] || cp "$work"/tree/boot/initrd.img-* "$work/out/initrd.img"
    say "writing the file system ($(elapsed) s)"
    as_root sh "$0" --image "$work/tree" "$work/out/root.ext4" "$(id -u):$(id -g)" "$SIZE_MIB" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; die "mke2fs failed"; }
    mv -T "$work/out" "$cache/$name"
    say "done ($(elapsed) s)"
}

elapsed() { echo $(($(date +%s) - start)); }

# Removes the directory $1 of a build, after the end of what still works in it.
clean() {
    end_session "$1/tree" || say "$1: still in use"
    for place in proc sys dev/pts dev; do
        ! mountpoint -q "$1/tree/$place" || as_root umount -l "$1/tree/$place"
    done
    # A tree that was made as root is removed as root.
    rm -rf --one-file-system "$1" 2>/dev/null || as_root rm -rf --one-file-system "$1"
}

# Ends the session that makes the tree $1, if there is one, and waits for that, 10 s at the most.
end_session() {
    leader=$(cat "$1.leader" 2>/dev/null) || return 0
    # Long after, the number may be another process's.
    grep -qsF "$1" "/proc/$leader/cmdline" || return 0
    as_root kill -- "-$leader"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        as_root kill -0 "-$leader" 2>/dev/null || return 0
        sleep 1
    done
    as_root kill -KILL "-$leader"
}

# Waits for process $1, showing the last line of its log $2 every few seconds.
follow() {
    shown=
    while kill -0 "$1" 2>/dev/null; do
        sleep 2
        line=$(tail -n 1 "$2" | cut -c1-100)
        if [ "$line" != "$shown" ]; then
            say "$line ($(elapsed) s)"
            shown=$line
        fi
    done
    wait "$1" || { tail -n 20 "$2" >&2; die "debootstrap failed"; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- "$@"
    else
        die "debootstrap needs root and there is no sudo: run $0 as root"
    fi
}

# The first apt source of this machine with Debian 12's main; empty if there is none.
apt_mirror() {
    command -v apt-get >/dev/null || return 0
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(REPO_URI)|$(CODENAME)|$(COMPONENT)|$(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        awk -F '|' -v suite="$SUITE" '$2 == suite && $3 == "main" && ($4 == "Debian" || $4 == "") { print $1; exit }'
}

# As root: the system as a directory $1, from mirror $2 if given, with the kernel's package $3 if given, and packages $4.
tree() {
    echo $$ >"$1.leader"
    PATH=$PATH:/usr/sbin:/sbin
    # Whatever the caller's is: others than root read the files of this system.
    umask 022
    # Debian's own locale, and no question asked.
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    debootstrap --variant=minbase --include="$PACKAGES${3:+,$KERNEL_PACKAGES}${4:+,$4}" "$SUITE" "$1" ${2:+"$2"} || {
        cat "$1/debootstrap/debootstrap.log" 2>/dev/null
        exit 1
    }
    configure "$1"
    [ -z "${3-}" ] || install_kernel "$1" "$3"
    [ -z "${4-}" ] || keep_idle "$1"
    slim "$1"
}

# Its scripts make the initramfs.
install_kernel() {
    cp "$2" "$1/kernel.deb"
    chroot "$1" dpkg -i /kernel.deb
    rm "$1/kernel.deb"
    # udev loads what the hardware needs, and the initramfs what the root needs.
    rm -f "$1/etc/systemd/system/systemd-modules-load.service" "$1/etc/systemd/system/kmod-static-nodes.service" \
        "$1/etc/systemd/system/modprobe@.service"
}

# What is started is what a test asks for: its packages start some by themselves.
keep_idle() {
    find "$1/etc/systemd/system" \( -name 'nginx*' -o -name 'iperf3*' -o -name 'stress-ng*' \) -type l -delete
}

configure() {
    echo flatboot >"$1/etc/hostname"
    printf '127.0.0.1 localhost flatboot\n::1 localhost\n' >"$1/etc/hosts"
    echo '/dev/vda / ext4 rw,noatime 0 0' >"$1/etc/fstab"
    # root logs in without a password: this disk is for trying out and for measuring.
    sed -i 's/^root:[^:]*:/root::/' "$1/etc/shadow"
    printf 'Debian GNU/Linux 12 under flatboot. Log in as root, without a password.\n\n' >"$1/etc/issue"
    : >"$1/etc/motd"
    # A new identity at every boot; an empty file, unlike none, is no "first boot" with its extra services.
    : >"$1/etc/machine-id"
    mkdir -p "$1/etc/systemd/journald.conf.d" "$1/etc/systemd/system.conf.d" "$1/etc/systemd/logind.conf.d"
    # The log is read on the machine or not at all: no second copy on the disk, and none that grows with memory.
    printf '[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\nForwardToSyslog=no\n' >"$1/etc/systemd/journald.conf.d/flatboot.conf"
    # The defaults wait 90 s for what hangs, longer than a boot test may take.
    printf '[Manager]\nDefaultTimeoutStopSec=10s\n' >"$1/etc/systemd/system.conf.d/flatboot.conf"
    printf '[Login]\nHandlePowerKey=poweroff\n' >"$1/etc/systemd/logind.conf.d/flatboot.conf"
    mask_slow_units "$1"
    serial_login "$1"
    network "$1"
}

# What a VM that lives for a minute does not need: housekeeping, and hardware that it does not have.
mask_slow_units() {
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
        fstrim.timer systemd-tmpfiles-clean.timer systemd-timesyncd.service \
        systemd-pstore.service systemd-modules-load.service kmod-static-nodes.service modprobe@.service \
        systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-machine-id-commit.service \
        systemd-boot-system-token.service systemd-rfkill.socket getty@tty1.service console-getty.service \
        systemd-ask-password-wall.path systemd-ask-password-console.path systemd-update-utmp-runlevel.service \
        dev-hugepages.mount dev-mqueue.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount; do
        ln -sf /dev/null "$1/etc/systemd/system/$unit"
    done
}

# The login prompt on ttyS0. The unit that systemd generates waits until udev has announced the device; the kernel's
# console is there from the start, so ours does not.
serial_login() {
    cat >"$1/etc/systemd/system/serial-getty@.service" <<'UNIT'
[Unit]
Description=Serial Getty on %I
After=systemd-user-sessions.service
Before=getty.target
IgnoreOnIsolate=yes
Conflicts=rescue.service
Before=rescue.service

[Service]
ExecStart=-/sbin/agetty --keep-baud 115200,57600,38400,9600 - $TERM
# Not the usual "idle", which waits up to 5 s for all other units: this prompt is what a user waits for.
Type=simple
Restart=always
UtmpIdentifier=%I
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/%I
TTYReset=yes
TTYVHangup=yes
IgnoreSIGPIPE=no
SendSIGHUP=yes

[Install]
WantedBy=getty.target
UNIT
    mkdir -p "$1/etc/systemd/system/getty.target.wants"
    ln -sf ../serial-getty@.service "$1/etc/systemd/system/getty.target.wants/serial-getty@ttyS0.service"
}

# What a network interface brings with it; a VM without one starts none of it. Whoever reaches the port of its ssh is root:
# that is for its host to keep to itself.
network() {
    printf '[Match]\nType=ether\n\n[Network]\nDHCP=yes\n' >"$1/etc/systemd/network/80-ether.network"
    printf 'PermitRootLogin yes\nPermitEmptyPasswords yes\n' >"$1/etc/ssh/sshd_config.d/flatboot.conf"
    find "$1/etc/systemd/system" \( -name ssh.service -o -name 'systemd-networkd*' -o -name 'systemd-resolved*' \) -delete
    rm -rf "$1/etc/systemd/system/network-online.target.wants"
    for unit in systemd-networkd.service systemd-resolved.service ssh.service; do
        printf 'ACTION=="add", SUBSYSTEM=="net", KERNEL=="e*", ENV{SYSTEMD_WANTS}+="%s"\n' "$unit"
    done >"$1/etc/udev/rules.d/80-flatboot.rules"
    ln -sf ../run/systemd/resolve/resolv.conf "$1/etc/resolv.conf"
}

slim() {
    rm -rf "${1:?}"/var/lib/apt/lists/* "${1:?}"/var/cache/apt/* "${1:?}"/var/cache/debconf/*-old "${1:?}"/var/log/* \
        "${1:?}"/var/lib/dpkg/*-old "${1:?}"/debootstrap "${1:?}"/tmp/* "${1:?}"/run/* "${1:?}"/dev/* "${1:?}"/usr/share/doc/* \
        "${1:?}"/usr/share/man/* "${1:?}"/usr/share/locale/*
    mkdir -p "${1:?}/var/lib/apt/lists/partial" "${1:?}/var/cache/apt/archives/partial"
    # Says that /etc and /var fit this /usr: else systemd rebuilds its databases at the first boot.
    touch "${1:?}/usr" "${1:?}/etc/.updated" "${1:?}/var/.updated"
}

# As root: image $2 of directory $1, owned by $3, of $4 MiB.
image() {
    PATH=$PATH:/usr/sbin:/sbin
    E2FSPROGS_FAKE_TIME=$(stat -c %Y "$1/usr")
    export E2FSPROGS_FAKE_TIME
    truncate -s "${4}M" "$2"
    # No lazy initialisation: its thread would write in the guest. No reserved blocks: the disk is root's alone.
    mke2fs -q -F -t ext4 -L flatboot -U "$UUID" -m 0 -J size=16 \
        -E "hash_seed=$UUID,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0" -d "$1" "$2"
    chown "$3" "$2"
}

case ${1-} in
--tree) shift && tree "$@" ;;
--image) shift && image "$@" ;;
*) main "$@" ;;
esac
