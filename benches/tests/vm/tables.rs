// SPDX-License-Identifier: Apache-2.0
//! Hash tables whose size follows memory: they are right before and after they are cleared, whatever memory held before.

use flatboot_bench::guest::Ended;
use libtest_mimic::Failed;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] =
    &[("tables::grow_and_are_right", grow), ("tables::memory_full_of_garbage", garbage)];

/// Tables that are too large to be cleared at boot, in 1 GiB.
const LARGE: &str = "dhash_entries=1048576 ihash_entries=1048576 mhash_entries=131072 mphash_entries=131072 \
    thash_entries=524288 uhash_entries=65536";
/// More dentries than the small table has buckets; what the kernel says when it has the large one. More connections than the table
/// of those has pages.
const CHECKS: &str = "mounts,inodes,identifiers,sockets=50,sockets=2000,sockets=50,datagrams=5000,ports=3000,nodmesg=dentries have moved,dentries=100000,dmesg=dentries have moved,\
    mounts,inodes,dentries=20000,calm";

/// The tables are what the test is about: their sizes are those that were asked for.
fn are_large(log: &str) -> bool {
    ["Dentry cache hash table entries: 1048576 ", "Inode-cache hash table entries: 1048576 "]
        .iter()
        .chain(&["Mount-cache hash table entries: 131072 ", "Mountpoint-cache hash table entries: 131072 "])
        .chain(&["TCP established hash table entries: 524288 ", "TCP bind hash table entries: 65536 "])
        .chain(&["UDP hash table entries: 65536 ", "tcp_listen_portaddr_hash hash table entries: 65536 "])
        .all(|table| log.contains(table))
}

fn grow(lab: &Lab) -> Result<(), Failed> {
    let checks = format!("dmesg=hash table entries: ,{CHECKS}");
    let ended = lab.passes(&lab.guest().cmdline(LARGE).checks(&checks))?;
    let sizes = |ended: &Ended| ended.report("dmesg").map(|report| report["lines"].to_string()).unwrap_or_default();
    require(are_large(&sizes(&ended)), || sizes(&ended))
}

/// What a VM finds in its memory after a warm reset or a kexec: the same under QEMU's microvm, whose memory is a file of 0xa5.
/// QEMU's own start-up code takes its memory for zero and hands over no memory map, so the command line has one.
fn garbage(lab: &Lab) -> Result<(), Failed> {
    let kernel = lab.kernel.join("vmlinux");
    let script = format!(
        "set -e; file=$(mktemp); trap 'rm -f $file' EXIT
        head -c 32M /dev/zero | tr '\\0' '\\245' >$file.part
        while [ $# -lt 32 ]; do set -- \"$@\" $file.part; done; cat \"$@\" >$file; rm $file.part
        [ $(od -An -tx1 -j 900000000 -N 4 $file | tr -d ' ') = a5a5a5a5 ] && echo 'memory is garbage'
        timeout 590 qemu-system-x86_64 -M microvm,accel=kvm,x-option-roms=off,pit=off,pic=off,rtc=off,acpi=off,memory-backend=ram \
        -object memory-backend-file,id=ram,size=1024M,share=off,mem-path=$file -m 1024M -cpu host -smp 2 \
        -nodefaults -no-user-config -display none -no-reboot -serial stdio -kernel {} -initrd {} \
        -append 'console=ttyS0 quiet memmap=exactmap memmap=636K@0 memmap=1022M@1M swiotlb=noforce pci=off reboot=t panic=-1 debugfs=on {LARGE} flatboot.end=reboot \"flatboot.check={CHECKS}\"'",
        kernel.display(),
        lab.initramfs.display()
    );
    let outcome = lab.shell(&script)?;
    let console = outcome.stdout_text();
    let passed = outcome.code == 0
        && console.contains("memory is garbage")
        && console.lines().any(|line| line.contains(r#""check":"done","ok":true"#));
    require(passed, || format!("exit code {}: {console}\n{}", outcome.code, String::from_utf8_lossy(&outcome.stderr)))
}
