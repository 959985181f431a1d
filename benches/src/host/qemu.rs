// SPDX-License-Identifier: Apache-2.0
//! The QEMU command line of the emulated host, as a pure function.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::HostOptions;
use crate::protocol;

/// The program, looked up in PATH.
pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// `panic=-1 oops=panic`: a broken kernel ends QEMU (-no-reboot) instead of hanging it.
///
/// `kvm.tsc_tolerance_ppm`: KVM keeps the TSC frequency of its start (an emulated CPU has no constant TSC), the kernel refines
/// its own two seconds later. When the two differ by more than the default 250 ppm, as the noise of emulation makes them at
/// random, KVM takes a guest for one with a slower TSC, which needs scaling that SVM lacks here; `set_tsc_khz()` then fails half
/// way and the guest's TSC-deadline timers hardly ever fire: it boots seconds slower and hangs in power-off. 2 % is twice the
/// largest correction that the kernel accepts.
///
/// `no_timer_check`: the kernel counts on ten ticks of the timer within a loop of its own, and panics ("IO-APIC + timer doesn't
/// work!") where this machine has so much else to do that they do not come.
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 panic=-1 oops=panic no_timer_check kvm.tsc_tolerance_ppm=20000";

/// What the processors have, and have not.
///
/// `-erms`: with "enhanced `rep movsb` and `rep stosb`" kernels clear and copy byte by byte, which is what hardware does best. QEMU
/// does byte after byte, and for each looks for translated code in a page that has any, as what a guest leaves has. Without it they
/// do it by 8 bytes: a boot behind others takes 3.2 s instead of 5.0 (means of 24), each page of 4 GiB is written in 35 s instead of 71.
const FEATURES: &str = "+svm,-erms";

/// The address that QEMU's own network expects its guest to have, and the gateway, which is this machine.
const ADDRESS: &str = "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off";

/// Files that one host needs, all but memory and kernel in one temporary directory.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) memory: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) console: PathBuf,
    pub(super) control: PathBuf,
    pub(super) stdin: PathBuf,
}

/// Tag of the n-th read-write share.
pub(super) fn share_tag(n: usize) -> String {
    format!("flatboot-rw{n}")
}

/// virtio serial of the n-th drive; at most 20 bytes.
pub(super) fn drive_serial(n: usize) -> String {
    format!("flatboot{n}")
}

/// Arguments for [`PROGRAM`].
pub(super) fn arguments(options: &HostOptions, files: &Files) -> Vec<OsString> {
    let mut args = Arguments::default();
    args.text("-nodefaults -no-user-config -display none -no-reboot");
    // Multi-threaded translation: virtual processors that really run in parallel.
    args.text("-M q35,memory-backend=ram -accel tcg,thread=multi");
    args.text(&format!("-cpu {},{FEATURES}", options.cpu));
    // CPU 0 is the host's own: host-init keeps programs, and so the vCPUs of their guests, off it.
    args.text(&format!("-smp {} -m {}M", options.cpus + 1, options.memory_mib));
    // Without reserve=off a machine with less memory than the host's size could refuse the mapping.
    let memory = format!("memory-backend-file,id=ram,share=on,reserve=off,size={}M,mem-path=", options.memory_mib);
    args.option("-object", &memory, &files.memory);
    args.path("-kernel", &files.kernel);
    args.path("-initrd", &files.initramfs);
    let network = if options.ports.is_empty() { "" } else { ADDRESS };
    let nodes = if options.nodes > 1 { format!(" numa=fake={}", options.nodes) } else { String::new() };
    args.pair("-append", format!("{KERNEL_COMMAND_LINE}{nodes} {network}").trim_end());
    args.option("-chardev", "file,id=console,path=", &files.console);
    args.text("-serial chardev:console -device virtio-serial-pci");
    for (id, name, path) in
        [("control", protocol::CONTROL_PORT, &files.control), ("stdin", protocol::STDIN_PORT, &files.stdin)]
    {
        args.option("-chardev", &format!("socket,id={id},path="), path);
        args.text(&format!("-device virtserialport,chardev={id},name={name}"));
    }
    args.share("root", protocol::ROOT_TAG, Path::new("/"), true);
    for (n, directory) in options.writable.iter().enumerate() {
        args.share(&format!("rw{n}"), &share_tag(n), directory, false);
    }
    if !options.ports.is_empty() {
        let forward = |port: &u16| format!(",hostfwd=tcp:127.0.0.1:{port}-:{port}");
        let forwards: String = options.ports.iter().map(forward).collect();
        args.text(&format!("-netdev user,id=net{forwards} -device virtio-net-pci,netdev=net,romfile="));
    }
    for (n, file) in options.drives.iter().enumerate() {
        args.option("-drive", &format!("if=none,id=drive{n},format=raw,snapshot=on,file="), file);
        args.text(&format!("-device virtio-blk-pci,drive=drive{n},serial={}", drive_serial(n)));
    }
    args.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    /// Several arguments without spaces of their own.
    fn text(&mut self, text: &str) {
        self.0.extend(text.split(' ').map(OsString::from));
    }

    fn pair(&mut self, name: &str, value: &str) {
        self.0.extend([name.into(), value.into()]);
    }

    /// An option whose whole value is a path: no escapes.
    fn path(&mut self, name: &str, path: &Path) {
        self.0.extend([name.into(), path.into()]);
    }

    /// An option whose value ends in a path.
    fn option(&mut self, name: &str, prefix: &str, path: &Path) {
        let mut value = OsString::from(prefix);
        value.push(escaped(path.as_os_str()));
        self.0.extend([name.into(), value]);
    }

    fn share(&mut self, id: &str, tag: &str, path: &Path, read_only: bool) {
        // none: the files belong to whoever runs QEMU, root or not. remap: inode numbers stay unique across mounts.
        let access = if read_only { ",readonly=on" } else { "" };
        let prefix = format!("local,id={id},security_model=none,multidevs=remap{access},path=");
        self.option("-fsdev", &prefix, path);
        self.text(&format!("-device virtio-9p-pci,fsdev={id},mount_tag={tag}"));
    }
}

/// In QEMU's options a comma inside a value is written twice.
fn escaped(value: &OsStr) -> OsString {
    let doubled = value.as_bytes().iter().flat_map(|byte| std::iter::repeat_n(*byte, 1 + usize::from(*byte == b',')));
    OsString::from_vec(doubled.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(options: &HostOptions) -> String {
        let file = |name: &str| PathBuf::from("/tmp/a,b").join(name);
        let files = Files {
            memory: file("memory"),
            kernel: file("bzImage"),
            initramfs: file("initramfs"),
            console: file("console"),
            control: file("control"),
            stdin: file("stdin"),
        };
        arguments(options, &files).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn commas_in_paths_are_doubled_only_inside_option_lists() {
        let line = line(&HostOptions::default());
        assert!(line.contains("-kernel /tmp/a,b/bzImage "), "{line}");
        assert!(line.contains("file,id=console,path=/tmp/a,,b/console "), "{line}");
    }

    #[test]
    fn root_is_read_only_and_shares_are_not() {
        let options = HostOptions { writable: vec!["/srv/out".into()], ..HostOptions::default() };
        let line = line(&options);
        assert!(line.contains("id=root,security_model=none,multidevs=remap,readonly=on,path=/ "), "{line}");
        assert!(line.contains("id=rw0,security_model=none,multidevs=remap,path=/srv/out "), "{line}");
    }

    #[test]
    fn a_host_has_a_network_only_for_its_ports() {
        let without = line(&HostOptions::default());
        assert!(!without.contains("-netdev") && !without.contains("ip="), "{without}");
        let line = line(&HostOptions { ports: vec![2222, 80], ..HostOptions::default() });
        let netdev = "-netdev user,id=net,hostfwd=tcp:127.0.0.1:2222-:2222,hostfwd=tcp:127.0.0.1:80-:80 ";
        assert!(line.contains(netdev) && line.contains(ADDRESS), "{line}");
    }

    #[test]
    fn a_host_has_one_node_unless_more_are_asked_for() {
        assert!(!line(&HostOptions::default()).contains("numa"));
        let line = line(&HostOptions { nodes: 2, ..HostOptions::default() });
        assert!(line.contains("kvm.tsc_tolerance_ppm=20000 numa=fake=2 -chardev "), "{line}");
    }

    #[test]
    fn drives_are_snapshots() {
        let options = HostOptions { drives: vec!["/srv/disk.img".into()], ..HostOptions::default() };
        let line = line(&options);
        assert!(line.contains("snapshot=on,file=/srv/disk.img "), "{line}");
        assert!(line.contains("serial=flatboot0"), "{line}");
    }
}
