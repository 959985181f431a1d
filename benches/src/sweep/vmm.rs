// SPDX-License-Identifier: Apache-2.0
//! The VMMs that are compared: one adapter each, which turns a guest into the VMM's own command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use flatboot_handoff::{FW_CFG, FW_CFG_FILE, KERNEL_PARAMETER, SECTION_SIZE};
use serde_json::json;

use super::switches::{Place, Switch, word};
use crate::observe::{Content, MarksFrom, Order, Resize, StagedFile, Template, Until};
use crate::results::{HostPages, Start};
use crate::work::{DATA_DISK, DATA_FILE, LINKS, Link, ROOT_DISK};

/// The kernel's images, by the names that its build gives them.
const VMLINUX: &str = "vmlinux";
const BZIMAGE: &str = "bzImage";
/// A variable by which glibc takes QEMU's memory in huge pages: docs/other-vmms.md.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=67108864");
/// What a table is staged as.
const TABLE: &str = "table.bin";

/// A kind of VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// flatboot.
    Flatboot,
    /// flatboot, through UEFI firmware.
    FlatbootUefi,
    /// QEMU's microvm machine.
    Qemu,
    /// The same through UEFI firmware.
    QemuUefi,
    /// QEMU's microvm machine with a table of the hand-off.
    QemuTable,
    /// QEMU's q35 machine with a table of the hand-off.
    QemuQ35Table,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
}

impl Kind {
    /// All kinds, in the order in which help lists them, and their names on the command line and in results.
    const NAMES: [(Self, &str); 8] = [
        (Self::Flatboot, "flatboot"),
        (Self::FlatbootUefi, "flatboot-uefi"),
        (Self::Qemu, "qemu"),
        (Self::QemuUefi, "qemu-uefi"),
        (Self::QemuTable, "qemu-table"),
        (Self::QemuQ35Table, "qemu-q35-table"),
        (Self::Firecracker, "firecracker"),
        (Self::CloudHypervisor, "cloud-hypervisor"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// Whether it is flatboot, which alone has something to switch off.
    #[must_use]
    pub fn is_flatboot(self) -> bool {
        matches!(self, Self::Flatboot | Self::FlatbootUefi)
    }

    /// Whether it is a machine of QEMU's.
    #[must_use]
    pub fn is_qemu(self) -> bool {
        matches!(self, Self::Qemu | Self::QemuUefi | Self::QemuTable | Self::QemuQ35Table)
    }

    /// Whether it is told of the devices of workloads.
    #[must_use]
    pub fn works(self) -> bool {
        matches!(self, Self::Flatboot | Self::Qemu)
    }

    /// What `flatboot map --for` calls it, if it gets a table, and the memory without which there is nothing to say in one: docs/other-vmms.md.
    #[must_use]
    pub fn table(self) -> Option<(&'static str, u64)> {
        match self {
            Self::QemuTable => Some(("qemu-microvm", 3072 << 20)),
            Self::QemuQ35Table => Some(("qemu-q35", 2816 << 20)),
            _ => None,
        }
    }

    /// Whether the kernel is loaded by firmware.
    #[must_use]
    pub fn is_uefi(self) -> bool {
        matches!(self, Self::FlatbootUefi | Self::QemuUefi)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value of `--vmm`: a kind, and its binary where one was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The kind.
    pub kind: Kind,
    /// The binary that the user named.
    pub path: Option<PathBuf>,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, Some(path)),
            None => (text, None),
        };
        let Some((kind, _)) = Kind::NAMES.into_iter().find(|(_, known)| *known == name) else {
            let names = Kind::NAMES.map(|(_, name)| name).join(", ");
            return Err(format!("{name:?}: must be one of {names}, or NAME=PATH"));
        };
        match (kind, path) {
            (_, Some("")) => Err(format!("{text:?}: the path is empty")),
            (Kind::Firecracker | Kind::CloudHypervisor, None) => Err(format!("{name}: name its binary: {name}=PATH")),
            _ => Ok(Self { kind, path: path.map(PathBuf::from) }),
        }
    }
}

/// A VMM's binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vmm {
    /// What it is.
    pub kind: Kind,
    /// Its path, the same on every host.
    pub program: String,
    /// The firmware's image, for those that have one.
    pub firmware: Option<PathBuf>,
}

/// What a VMM is to boot: the same for all but the command line's mode and what is switched off.
#[derive(Debug, Clone)]
pub struct Guest<'a> {
    /// Kernel image, an ELF vmlinux with a PVH note; the bzImage for firmware is beside it.
    pub kernel: &'a Path,
    /// Initramfs.
    pub initramfs: &'a Path,
    /// Whole kernel command line.
    pub cmdline: String,
    /// Memory.
    pub memory_bytes: u64,
    /// vCPUs.
    pub cpus: u16,
    /// How it comes to have its memory, if it is not booted with it; that its guest waits for a line is in [`Guest::cmdline`].
    pub start: Option<Start>,
    /// The table of the hand-off, for a VMM that does not make one itself.
    pub table: Option<&'a Path>,
    /// The disk with the userland of its workloads, if it is to work; that they are asked for is in [`Guest::cmdline`] already.
    pub userland: Option<&'a Path>,
    /// What is switched off; its word on the kernel command line is in [`Guest::cmdline`] already.
    pub without: Option<&'static Switch>,
}

/// How a boot is watched, whatever the VMM.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// A boot without init after this time has failed.
    pub limit_ms: u64,
    /// How long it is watched.
    pub until: Until,
    /// The pages that the host may use.
    pub host_pages: HostPages,
    /// VMs that are started at the same time, if it is a fleet.
    pub vms: Option<u32>,
}

/// Paths of the files that an adapter stages, all in one directory.
struct Staged<'a> {
    directory: &'a Path,
}

impl Staged<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

impl Vmm {
    /// What the observer has to do to boot `guest`; files go to `directory`, which has to be there.
    #[must_use]
    pub fn order(&self, guest: &Guest<'_>, directory: &Path, watch: &Watch) -> Order {
        let staged = Staged { directory };
        let copy =
            |name: &str, from: &Path| StagedFile { path: staged.path(name), content: Content::Copy(from.into()) };
        let kernel = match self.firmware {
            Some(_) => copy(BZIMAGE, &guest.kernel.with_file_name(BZIMAGE)),
            None => copy(VMLINUX, guest.kernel),
        };
        let mut files = vec![kernel, copy("initramfs", guest.initramfs)];
        files.extend(self.firmware.as_deref().map(|firmware| copy("firmware.fd", firmware)));
        files.extend(guest.table.map(|table| copy(TABLE, table)));
        let (args, marks) = match self.kind {
            Kind::Flatboot => (started(guest, &staged), timeline(&staged)),
            Kind::FlatbootUefi => {
                let firmware = words(&["--firmware", &staged.text("firmware.fd")]);
                ([flatboot(guest, &staged, BZIMAGE), firmware].concat(), timeline(&staged))
            }
            Kind::Qemu | Kind::QemuTable => {
                (qemu(guest, &staged, VMLINUX, &microvm("acpi=off")), MarksFrom::Port(staged.path("marks")))
            }
            Kind::QemuQ35Table => (qemu(guest, &staged, VMLINUX, Q35), MarksFrom::Port(staged.path("marks"))),
            Kind::QemuUefi => {
                let firmware = words(&["-bios", &staged.text("firmware.fd")]);
                // Firmware finds the processors in the ACPI tables.
                let args = [qemu(guest, &staged, BZIMAGE, &microvm("acpi=on")), firmware].concat();
                (args, MarksFrom::Port(staged.path("marks")))
            }
            Kind::CloudHypervisor => (cloud_hypervisor(guest, &staged), MarksFrom::Nowhere),
            Kind::Firecracker => {
                let content = Content::Text(firecracker(guest, &staged));
                files.push(StagedFile { path: staged.path("vm.json"), content });
                (words(&["--no-api", "--config-file", &staged.text("vm.json")]), MarksFrom::Nowhere)
            }
        };
        let Watch { limit_ms, until, host_pages, vms } = *watch;
        let (program, (template, resize)) = (self.program.clone(), prepared(guest, &staged));
        // Whoever asks for a table follows the page that says how.
        let tunables = self.kind.table().map(|_| TUNABLES);
        let env = tunables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Order { program, args, env, marks, files, limit_ms, until, host_pages, vms, template, resize }
    }
}

fn timeline(staged: &Staged<'_>) -> MarksFrom {
    MarksFrom::Timeline(staged.path("timeline"))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Options, each with its value.
fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Vec<String> {
    pairs.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

/// In QEMU's options a comma inside a value is written twice.
pub(crate) fn escaped(path: &str) -> String {
    path.replace(',', ",,")
}

/// What flatboot and Cloud Hypervisor, whose names it took over, say alike.
fn shared_words(guest: &Guest<'_>, staged: &Staged<'_>, kernel: &str) -> Vec<String> {
    let (size, most) = memory(guest);
    let most = most.filter(|most| *most > size).map(|most| format!(",max={}M", most >> 20)).unwrap_or_default();
    // QEMU asks for huge pages for all memory, and what a guest gets done depends on them.
    let huge = if guest.userland.is_some() { ",thp=all" } else { "" };
    pairs([
        ("--cpus", format!("boot={}", guest.cpus)),
        ("--memory", format!("size={}M{most}{huge}", size >> 20)),
        ("--kernel", staged.text(kernel)),
        ("--initramfs", staged.text("initramfs")),
        ("--cmdline", guest.cmdline.clone()),
    ])
}

fn flatboot(guest: &Guest<'_>, staged: &Staged<'_>, kernel: &str) -> Vec<String> {
    let own = words(&["--timeline", &staged.text("timeline"), "--shutdown-timeout", "0"]);
    let off = word(guest.without, Place::Study).map(|word| words(&["--study", word])).unwrap_or_default();
    [words(&["run"]), shared_words(guest, staged, kernel), own, off, flatboot_work(guest)].concat()
}

/// What flatboot gets on the way to the guest that is timed.
fn started(guest: &Guest<'_>, staged: &Staged<'_>) -> Vec<String> {
    let booted = flatboot(guest, staged, VMLINUX);
    match guest.start {
        None => booted,
        Some(Start::Resized { .. }) => [booted, server(staged)].concat(),
        Some(Start::Restored { from_bytes }) => {
            let directory = template(staged).display().to_string();
            let mut args = words(&["run", "--restore", &directory, "--timeline", &staged.text("timeline")]);
            args.extend(words(&["--shutdown-timeout", "0"]));
            if from_bytes.is_some() {
                args.extend(words(&["--memory", &format!("size={}M", guest.memory_bytes >> 20)]));
            }
            args
        }
    }
}

/// In memory, as all other files are that a VMM finds; a directory cannot be renamed where those are in the emulated host.
fn template(staged: &Staged<'_>) -> PathBuf {
    Path::new("/dev/shm").join(staged.directory.file_name().unwrap_or_default())
}

fn server(staged: &Staged<'_>) -> Vec<String> {
    words(&["--api-socket", &format!("path={}", staged.text("api"))])
}

/// What the observer does besides.
fn prepared(guest: &Guest<'_>, staged: &Staged<'_>) -> (Option<Template>, Option<Resize>) {
    let socket = staged.path("api");
    match guest.start {
        None => (None, None),
        Some(Start::Restored { .. }) => {
            let args = [flatboot(guest, staged, VMLINUX), server(staged)].concat();
            (Some(Template { args, socket, directory: template(staged) }), None)
        }
        Some(Start::Resized { from_bytes }) => {
            let to = guest.memory_bytes;
            // The first request of all waits until the guest has made its plan of what it may get.
            let first = from_bytes.min(to) + SECTION_SIZE;
            (None, Some(Resize { socket, sizes: vec![first, from_bytes, to] }))
        }
    }
}

/// Memory at the start, and the most that there can be, in bytes.
fn memory(guest: &Guest<'_>) -> (u64, Option<u64>) {
    let memory = guest.memory_bytes;
    match guest.start {
        None | Some(Start::Restored { from_bytes: None }) => (memory, None),
        Some(Start::Restored { from_bytes: Some(from) }) => (from, Some(memory)),
        Some(Start::Resized { from_bytes }) => (memory.min(from_bytes), Some(memory.max(from_bytes))),
    }
}

/// Of a network interface: QEMU's virtio-mmio offers no other (`VIRTQUEUE_MAX_SIZE`), whatever its device would have.
const QUEUE_SIZE: u16 = 1024;

/// The devices of workloads.
fn flatboot_work(guest: &Guest<'_>) -> Vec<String> {
    let Some(userland) = guest.userland else { return Vec::new() };
    let root = format!("path={},readonly=on,serial={ROOT_DISK}", userland.display());
    let data = format!("path={DATA_FILE},serial={DATA_DISK}");
    let net = |link: &&Link| {
        let vhost = if link.vhost { "on" } else { "off" };
        format!("tap={},mac={},vhost={vhost},queue_size={QUEUE_SIZE}", link.tap, link.mac)
    };
    let nets = LINKS.iter().flat_map(|link| ["--net".to_owned(), net(link)]);
    words(&["--disk", &root, "--disk", &data]).into_iter().chain(nets).collect()
}

/// The same of QEMU's microvm: the data disk by `io_uring` and on a thread of its own, which is the fastest that it has.
fn qemu_work(guest: &Guest<'_>) -> Vec<String> {
    let Some(userland) = guest.userland else { return Vec::new() };
    let userland = escaped(&userland.display().to_string());
    // Its virtio-mmio is that of before virtio 1.0 unless it is told.
    let mut all = words(&["-object", "iothread,id=data", "-global", "virtio-mmio.force-legacy=false"]);
    let mut pair = |option: &str, value: String| all.extend([option.to_owned(), value]);
    pair("-drive", format!("if=none,id=root,format=raw,readonly=on,file={userland}"));
    pair("-device", format!("virtio-blk-device,drive=root,serial={ROOT_DISK}"));
    pair("-drive", format!("if=none,id=data,format=raw,aio=io_uring,file={DATA_FILE}"));
    pair("-device", format!("virtio-blk-device,drive=data,serial={DATA_DISK},iothread=data"));
    for link in LINKS {
        let (tap, vhost) = (link.tap, if link.vhost { "on" } else { "off" });
        pair("-netdev", format!("tap,id={tap},ifname={tap},script=no,downscript=no,vhost={vhost}"));
        pair("-device", format!("virtio-net-device,netdev={tap},mac={}", link.mac));
    }
    all
}

/// The fastest microvm that QEMU's documentation (docs/system/i386/microvm.rst) describes.
fn microvm(acpi: &str) -> String {
    format!("microvm,accel=kvm,x-option-roms=off,pit=off,pic=off,rtc=off,{acpi},memory-backend=ram")
}

/// A PC without what a server lacks, too.
pub(crate) const Q35: &str = "q35,accel=kvm,usb=off,vmport=off,smbus=off,sata=off,hpet=off,memory-backend=ram";

/// A machine of QEMU's, with the mark port and the table, if there is one. The memory is not reserved, as no other VMM's is.
fn qemu(guest: &Guest<'_>, staged: &Staged<'_>, kernel: &str, machine: &str) -> Vec<String> {
    let (mib, cpus) = (guest.memory_bytes >> 20, guest.cpus);
    let fixed = format!(
        "-M {machine} -object memory-backend-ram,id=ram,reserve=off,size={mib}M -m {mib}M -cpu host -smp {cpus} -nodefaults \
         -no-user-config -display none -no-reboot -chardev stdio,id=console,signal=off -serial chardev:console"
    );
    let parameter = guest.table.map(|_| format!(" {KERNEL_PARAMETER}={FW_CFG}")).unwrap_or_default();
    let own = pairs([
        ("-kernel", staged.text(kernel)),
        ("-initrd", staged.text("initramfs")),
        ("-append", format!("{}{parameter}", guest.cmdline)),
        ("-chardev", format!("file,id=marks,path={}", escaped(&staged.text("marks")))),
        ("-device", "isa-debugcon,iobase=0x80,chardev=marks".to_owned()),
    ]);
    let table = || pairs([("-fw_cfg", format!("name={FW_CFG_FILE},file={}", escaped(&staged.text(TABLE))))]);
    let table = guest.table.map(|_| table()).unwrap_or_default();
    [fixed.split(' ').map(str::to_owned).collect(), own, table, qemu_work(guest)].concat()
}

fn cloud_hypervisor(guest: &Guest<'_>, staged: &Staged<'_>) -> Vec<String> {
    [shared_words(guest, staged, VMLINUX), words(&["--serial", "tty", "--console", "off"])].concat()
}

/// Its configuration file (docs/getting-started.md); its serial console is standard output.
fn firecracker(guest: &Guest<'_>, staged: &Staged<'_>) -> String {
    let configuration = json!({
        "boot-source": {
            "kernel_image_path": staged.text("vmlinux"),
            "initrd_path": staged.text("initramfs"),
            "boot_args": guest.cmdline,
        },
        "machine-config": { "vcpu_count": guest.cpus, "mem_size_mib": guest.memory_bytes >> 20 },
        "drives": [],
    });
    configuration.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Guest<'static> {
        Guest {
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            cmdline: "a b=\"c d\"".to_owned(),
            memory_bytes: 4 << 30,
            cpus: 3,
            start: None,
            table: None,
            userland: None,
            without: None,
        }
    }

    const WATCH: Watch = Watch { limit_ms: 9, until: Until::Init, host_pages: HostPages::Small, vms: None };

    fn order(kind: Kind) -> Order {
        let firmware = kind.is_uefi().then(|| "/f".into());
        Vmm { kind, program: "/vmm".to_owned(), firmware }.order(&guest(), Path::new("/d,e"), &WATCH)
    }

    fn follows(order: &Order, option: &str, value: &str) -> bool {
        order.args.windows(2).any(|pair| pair[0] == option && pair[1] == value)
    }

    #[test]
    fn a_vm_that_is_not_booted_is_made_ready_before() {
        let order = |start| {
            let vmm = Vmm { kind: Kind::Flatboot, program: "/vmm".to_owned(), firmware: None };
            vmm.order(&Guest { start: Some(start), ..guest() }, Path::new("/d"), &WATCH)
        };
        let restored = order(Start::Restored { from_bytes: Some(1 << 30) });
        assert!(follows(&restored, "--restore", "/dev/shm/d") && follows(&restored, "--memory", "size=4096M"));
        let template = restored.template.unwrap();
        assert!(template.args.join(" ").contains("--memory size=1024M,max=4096M") && restored.resize.is_none());
        let same = order(Start::Restored { from_bytes: None });
        assert!(!same.args.contains(&"--memory".to_owned()));
        assert!(same.template.unwrap().args.join(" ").contains("--memory size=4096M --kernel"));
        for (from, keys, first) in [(1, "size=1024M,max=4096M", 1152), (16, "size=4096M,max=16384M", 4224)] {
            let resized = order(Start::Resized { from_bytes: from << 30 });
            assert!(follows(&resized, "--memory", keys) && follows(&resized, "--api-socket", "path=/d/api"));
            let sizes = resized.resize.unwrap().sizes;
            assert_eq!(sizes, [first << 20, from << 30, 4 << 30]);
        }
    }

    #[test]
    fn every_vmm_gets_the_same_guest() {
        for (kind, _) in Kind::NAMES {
            let order = order(kind);
            let copies: Vec<_> = order.files.iter().map(|file| &file.content).take(2).collect();
            let (kernel, image) = if kind.is_uefi() { ("/bzImage", "/d,e/bzImage") } else { ("/k", "/d,e/vmlinux") };
            assert_eq!(copies, [&Content::Copy(kernel.into()), &Content::Copy("/i".into())], "{kind}");
            let everything = format!("{:?}{:?}", order.args, order.files);
            for part in [image, "/d,e/initramfs", "4096", "3", "a b=", "c d"] {
                assert!(everything.contains(part), "{kind}: {part} in {everything}");
            }
            assert_eq!((order.program.as_str(), order.limit_ms), ("/vmm", 9));
            assert_eq!(order.host_pages, HostPages::Small, "{kind}");
        }
    }

    #[test]
    fn each_has_its_own_words() {
        let flatboot = order(Kind::Flatboot);
        assert!(follows(&flatboot, "--memory", "size=4096M") && follows(&flatboot, "--timeline", "/d,e/timeline"));
        assert_eq!(flatboot.marks, MarksFrom::Timeline("/d,e/timeline".into()));
        let qemu = order(Kind::Qemu);
        assert!(
            follows(&qemu, "-append", "a b=\"c d\"") && follows(&qemu, "-smp", "3") && follows(&qemu, "-m", "4096M")
        );
        assert!(follows(&order(Kind::FlatbootUefi), "--firmware", "/d,e/firmware.fd"));
        assert!(follows(&order(Kind::QemuUefi), "-bios", "/d,e/firmware.fd"));
        assert!(follows(&qemu, "-chardev", "file,id=marks,path=/d,,e/marks"), "{:?}", qemu.args);
        let Content::Text(text) = &order(Kind::Firecracker).files[2].content else { panic!("no configuration") };
        let configuration: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(configuration["machine-config"]["mem_size_mib"], 4096);
        assert_eq!(configuration["boot-source"]["boot_args"], "a b=\"c d\"");
    }

    #[test]
    fn a_table_is_staged_and_asked_for() {
        for kind in [Kind::QemuTable, Kind::QemuQ35Table] {
            let vmm = Vmm { kind, program: "/vmm".to_owned(), firmware: None };
            let order = vmm.order(&Guest { table: Some(Path::new("/t")), ..guest() }, Path::new("/d,e"), &WATCH);
            assert_eq!(order.files[2].content, Content::Copy("/t".into()));
            assert!(follows(&order, "-append", "a b=\"c d\" memmap_handoff=fw_cfg"), "{:?}", order.args);
            assert!(follows(&order, "-fw_cfg", "name=opt/org.flatboot/memmap-handoff,file=/d,,e/table.bin"));
            assert!(kind.table().is_some() && kind.is_qemu());
            let variable = order.env.get("GLIBC_TUNABLES").map(|value| format!("GLIBC_TUNABLES={value} "));
            assert!(include_str!("../../../docs/other-vmms.md").contains(&variable.unwrap()));
        }
        assert_eq!(Kind::Qemu.table(), None);
    }

    #[test]
    fn what_is_switched_off_is_told_to_flatboot() {
        let flatboot = Vmm { kind: Kind::Flatboot, program: "/vmm".to_owned(), firmware: None };
        for (name, option, value) in [
            ("arenas", "--study", "arenas=off"),
            ("early-threads", "--study", "early=off"),
            ("low-zones", "--memory", "size=4096M"),
        ] {
            let guest = Guest { without: Switch::named(name), ..guest() };
            assert!(guest.without.is_some(), "{name}");
            let order = flatboot.order(&guest, Path::new("/d"), &WATCH);
            assert!(follows(&order, option, value), "{name}: {:?}", order.args);
        }
    }

    #[test]
    fn a_guest_that_works_has_huge_pages_as_under_qemu() {
        let flatboot = Vmm { kind: Kind::Flatboot, program: "/vmm".to_owned(), firmware: None };
        let works = Guest { userland: Some(Path::new("/u")), ..guest() };
        assert!(follows(&flatboot.order(&works, Path::new("/d"), &WATCH), "--memory", "size=4096M,thp=all"));
    }

    #[test]
    fn choices_are_names_and_paths() {
        assert_eq!("qemu".parse(), Ok(Choice { kind: Kind::Qemu, path: None }));
        let named = Choice { kind: Kind::CloudHypervisor, path: Some("/ch".into()) };
        assert_eq!("cloud-hypervisor=/ch".parse(), Ok(named));
        for wrong in ["", "Qemu", "qemu=", "firecracker", "crosvm=/x"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong}");
        }
    }
}
