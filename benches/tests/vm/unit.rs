// SPDX-License-Identifier: Apache-2.0
//! The unit of the Debian packages: a clean Debian 12 is started as a container of the host that has KVM, with systemd as its first
//! process. The packages are installed there, VMs are started as their README says, and removing the packages ends them.

use std::path::Path;
use std::time::Duration;

use libtest_mimic::Failed;

use super::lab::{Lab, require};
use super::packages::clean_debian;

/// What becomes the container's first process. /dev is its own: the rights of KVM's device are changed there.
const CONTAINER: &str = r#"
cd "$1"; mount --bind . .; cd "$1"
mount -t proc proc proc; mount -t sysfs sysfs sys; mount -t cgroup2 cgroup2 sys/fs/cgroup
for name in run dev; do mount -t tmpfs -o mode=755 tmpfs $name; done
mkdir dev/pts dev/shm dev/net; mount -t devpts devpts dev/pts; mount -t tmpfs tmpfs dev/shm
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "kvm 10 232" "vhost-net 10 238" "net/tun 10 200"; do
    set -- $node; mknod -m 666 dev/$1 c $2 $3
done
chgrp "$(sed -n "s/^kvm:x:\([0-9]*\):.*/\1/p" etc/group)" dev/kvm dev/vhost-net; chmod 660 dev/kvm dev/vhost-net
ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mount --move . /
# The mounts of credentials are to be seen by the services that have them.
chroot . mount --make-rshared /
exec chroot . /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=test.service
"#;

const SERVICE: &str = "[Unit]
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
TimeoutStartSec=600
ExecStart=/bin/sh -e /root/test.sh
StandardOutput=file:/root/said
StandardError=inherit
";

/// What runs in it. The README's VMs, but for what they boot and how long they get to power off: init never does. The first has a
/// tap, and goes on while a package with another unit is installed. The second has its disk elsewhere, dies and comes back; the
/// name of the third is none for a user.
const TEST: &str = r#"
cd /root; umask 077; export DEBIAN_FRONTEND=noninteractive
failed() { set +e; echo "failed: $*"; journalctl --no-pager -n 60; exit 1; }
until_true() { n=0; until eval "$1"; do n=$((n+1)); [ $n -lt 600 ] || failed "waited for $1"; sleep 0.2; done; }
ask() {
    perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new("/run/flatboot/$ARGV[0]/api.sock") or die "api.sock: $!";
        print $s "GET /api/v1/$ARGV[1] HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"; print <$s>' "$@"
}
dpkg -i ./*.deb >log 2>&1 || { cat log; exit 1; }
truncate -s 1M disk.raw
sed -n '/^    install -D/,/^    systemctl start/p' /usr/share/doc/flatboot/README |
    sed "s,--firmware [^ ]*,--kernel /vmlinuz --initramfs /initrd.img --cmdline 'quiet flatboot.end=hang',
        s,size=4G,size=256M,; s,timeout 90,timeout 1," >readme
grep -q flatboot.end readme
sh -e -c "$(sed -n 's/^    ip /ip /p' /usr/share/doc/flatboot/README)"
sed 's,--memory,--net tap=vm0 --memory,' readme >first; sh -e first
mkdir /etc/systemd/system/flatboot@db.service.d
sed -n '/^    .Service.$/,/^$/p' /usr/share/doc/flatboot/README |
    sed 's,/srv/web,/srv/db,' >/etc/systemd/system/flatboot@db.service.d/disk.conf
grep -q ReadWritePaths=/srv/db.raw /etc/systemd/system/flatboot@db.service.d/disk.conf
systemctl daemon-reload
sed 's,/var/lib/flatboot/web/disk,/srv/db,g; s,web,db,g' readme >second; sh -e second
systemctl enable flatboot@db 2>/dev/null
for name in web db; do until_true "grep -qs '\"check\":\"done\"' /var/lib/flatboot/$name/console"; done
echo "users $(systemctl show --value -p UID flatboot@web flatboot@db | xargs)"
echo "disk $(stat -L -c '%u %a' /var/lib/flatboot/web/disk.raw)"
echo "api $(ask web vmm.ping | head -n 1)"
(umask 022; dpkg-deb -R flatboot_*.deb other; echo '# Another.' >>other/lib/systemd/system/flatboot@.service
    dpkg-deb -Znone -b other other.deb >log)
first=$(systemctl show --value -p MainPID flatboot@web)
dpkg -i other.deb >log 2>&1 || { cat log; exit 1; }
! grep -i syntax log || failed "a script is wrong"
echo "again $(systemctl show --value -p NeedDaemonReload flatboot@web)"
[ "$(systemctl show --value -p MainPID flatboot@web)" = "$first" ] || failed "an upgrade has ended a VM"
systemctl stop flatboot@web
echo "stopped $(systemctl is-active flatboot@web)"
systemctl kill -s KILL flatboot@db
until_true 'systemctl show flatboot@db | grep -q NRestarts=1'
until_true 'ask db vm.info 2>/dev/null | grep -q Running'
sleep 2
[ "$(systemctl show --value -p NRestarts flatboot@db)" = 1 ] || failed "a VM does not stay"
grep -q check /var/lib/flatboot/db/console.old || failed "what a VM had said is lost"
cp /etc/flatboot/web.json /etc/flatboot/web.1.json
if systemctl start flatboot@web.1 2>/dev/null; then failed "web.1 is a name for a VM"; fi
rm /etc/flatboot/*.json
dpkg --purge flatboot-bench flatboot flatboot-firmware >log 2>&1 || { cat log; exit 1; }
echo "purged $(systemctl is-active flatboot@db) $(find /etc/systemd/system -name 'flatboot@*' -type l | wc -l)"
journalctl --no-pager -q -u 'flatboot@*' >journal
[ -s journal ] || failed "there is no journal"
if grep -i unknown journal; then failed "systemd does not know what it is told"; fi
"#;

/// What the test says is compared, but for the users' numbers.
pub(crate) fn keeps_vms(lab: &Lab, packages: &Path) -> Result<(), Failed> {
    let script = format!(
        "set -e; place=$(mktemp -d -p /dev/shm); root=$place/root; mkdir $root; cp -a '{debian}/.' $root\n\
         cp '{packages}'/flatboot_*.deb '{packages}'/flatboot-firmware_*.deb '{packages}'/flatboot-bench_*.deb $root/root/\n\
         cp '{kernel}' $root/vmlinuz; cp '{initramfs}' $root/initrd.img; chmod 644 $root/vmlinuz $root/initrd.img\n\
         cat >$root/root/test.sh <<'END'\n{TEST}END\n\
         cat >$root/etc/systemd/system/test.service <<'END'\n{SERVICE}END\n\
         cat >$place/container.sh <<'END'\n{CONTAINER}END\n\
         code=0; unshare --mount --pid --ipc --uts --cgroup --net --fork --kill-child \
             /bin/sh -e $place/container.sh $root </dev/null >&2 || code=$?\n\
         cat $root/root/said; rm -rf $place; exit $code",
        debian = clean_debian(lab)?.display(),
        packages = packages.display(),
        kernel = lab.kernel.join("bzImage").display(),
        initramfs = lab.initramfs.display(),
    );
    let outcome = lab.shell_for(&script, Duration::from_secs(900))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let lines: Vec<_> = said.lines().map(str::trim_end).collect();
    let [users, disk, "api HTTP/1.1 200 OK", "again no", "stopped inactive", "purged inactive 0"] = lines.as_slice()
    else {
        return Err(seen().into());
    };
    let ids: Vec<_> = users.split(' ').skip(1).collect();
    require(matches!(ids.as_slice(), [web, db] if web != db) && *disk == format!("disk {} 660", ids[0]), seen)
}
