// SPDX-License-Identifier: Apache-2.0

use std::env;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Instant;

use flatboot_handoff::{Region, RegionFlags};
use tempfile::TempDir;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use super::*;
use crate::config::{RawConfig, ShapeArgs};
use crate::devices::terminal::RawTerminal;
use crate::images;
use crate::memory::guest::{self, present};
use crate::memory::{Backing, GpaRange, GuestMemory, Slot};
use crate::sandbox::{Jail, Kind, Seccomp};
use crate::timeline::Timeline;

const MIB: u64 = 1 << 20;
/// Offset of `p_memsz` in the only program header of [`images::vmlinux`].
const MEMSZ: usize = 64 + 40;
/// Says to this test binary that it is to lose a page.
const ROLE: &str = "FLATBOOT_TEST_LOSES";

/// A VM whose memory holds all that flatboot writes before the guest runs.
struct Written {
    _files: TempDir,
    memory: GuestMemory,
    plan: MemoryPlan,
}

/// The boot story's writes, on `kernel` and an initramfs of `initramfs` MiB, none if 0.
fn written(memory: &str, study: &str, kernel: &[u8], initramfs: u64) -> Written {
    let files = tempfile::tempdir().unwrap();
    let path = |name| files.path().join(name);
    fs::write(path("kernel"), kernel).unwrap();
    File::create(path("initramfs")).unwrap().set_len(initramfs * MIB).unwrap();
    let config = Config::try_from(RawConfig {
        kernel: Some(path("kernel")),
        initramfs: (initramfs > 0).then(|| path("initramfs")),
        cmdline: "quiet".to_owned(),
        shape: ShapeArgs {
            cpus: "boot=255".to_owned(),
            memory: Some(memory.to_owned()),
            study: vec![study.to_owned()],
            ..ShapeArgs::default()
        },
        rng: "off".to_owned(),
        serial: "null".to_owned(),
        shutdown_timeout: "1".to_owned(),
        ..RawConfig::default()
    })
    .unwrap();
    let payload = Inspected::new(&config.payload, config.machine.cpus.topology).unwrap();
    let plan = MemoryPlan::new(&config.machine.memory, payload.kind(), AddressWidth::WIDEST).unwrap();
    let memory = backing::map(&plan).unwrap();
    let platform = Platform { config: &config.machine, plan: &plan, memory: &memory, virtio_devices: 14 };
    payload.load(platform, &Timeline::new(Instant::now())).unwrap();
    Written { _files: files, memory, plan }
}

impl Written {
    /// Pages that the host has for each region, and whether the region is said to be zero.
    fn regions(&self) -> Vec<(u64, bool)> {
        let pages = |region: &Region| present(&self.memory, GpaRange::of(region.base, region.length));
        let zeroed = |region: &Region| region.flags.contains(RegionFlags::ZEROED);
        self.plan.regions().iter().map(|region| (pages(region), zeroed(region))).collect()
    }
}

/// A kernel of `mib` MiB, nearly all of it zeroes that are not in the file.
fn vmlinux(mib: u64) -> Vec<u8> {
    let mut image = images::vmlinux();
    image[MEMSZ..MEMSZ + 8].copy_from_slice(&(mib * MIB).to_le_bytes());
    image
}

#[test]
fn what_is_said_to_be_zero_was_never_touched() {
    for memory in ["64M", "512M", "513M", "1G", "3G", "4G", "5124M", "8G", "8G,thp=all"] {
        for study in ["layout=split", "layout=pc", "holes=7"] {
            for (kernel, initramfs) in [(vmlinux(1), 0), (vmlinux(20), 3), (images::bzimage(), 3)] {
                if study == "holes=7" && memory != "8G" {
                    continue;
                }
                let written = written(&format!("size={memory}"), study, &kernel, initramfs);
                let regions = written.regions();
                for (index, (pages, zeroed)) in regions.iter().enumerate() {
                    assert!(!zeroed || *pages == 0, "{memory} {study}: region {index}: {pages} pages were written");
                }
                // The kernel is in the first one: so writes do show.
                assert!(matches!(regions[0], (1.., false)), "{memory} {study}: {regions:?}");
                let high = regions.iter().skip(1).filter(|(_, zeroed)| *zeroed).count();
                assert_eq!(high, regions.len() - 1, "{memory} {study}");
            }
        }
    }
}

#[test]
fn a_region_with_the_initramfs_is_not_said_to_be_zero() {
    // The kernel leaves too little room for it below 4 GiB.
    for (memory, study, kernel) in
        [("size=2G", "holes=0", 490), ("size=8G", "holes=7", 490), ("size=4G", "layout=pc", 3050)]
    {
        let written = written(memory, study, &vmlinux(kernel), 8);
        let initramfs = written.plan.initramfs().unwrap();
        assert!(initramfs.start() >= 1 << 32, "{memory}");
        let regions = written.regions();
        assert!(matches!(regions[1], (2048.., false)), "{memory}: {regions:?}");
        assert!(regions[2..].iter().all(|region| *region == (0, true)), "{memory}: {regions:?}");
    }
}

#[test]
fn a_single_write_shows() {
    // A page of the host is one of the guest.
    let written = written("size=1G,thp=off", "holes=0", &vmlinux(1), 0);
    assert_eq!(written.regions()[1], (0, true));
    written.memory.write_obj(0u8, GuestAddress((1 << 32) + 77 * MIB)).unwrap();
    assert_eq!(written.regions()[1], (1, true), "even one of a zero");
}

/// script(1) gives its command a terminal of its own.
#[test]
fn a_page_that_is_lost_in_a_jail_leaves_the_terminal_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let me = env::current_exe().unwrap();
    let loses = format!("'{}' --exact --nocapture --test-threads=1 boot::tests::lose_a_page", me.display());
    let commands = format!("stty -g >before; {loses}; echo status $?; stty -g >after");
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &commands, "/dev/null"])
        .current_dir(directory.path())
        .env(ROLE, "1")
        .stdin(Stdio::null())
        .output()
        .expect("script(1), of Debian's bsdutils, must be there");
    let shown = String::from_utf8_lossy(&output.stdout);
    let line = "flatboot: error: the host cannot give memory (SIGBUS) at guest physical address 0x0: ";
    assert!(shown.contains(line) && shown.contains(&format!("status {}", 128 + libc::SIGBUS)), "{shown}");
    let mode = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!(mode("before"), mode("after"));
}

/// No test of its own: it runs in another process, which it ends.
#[test]
fn lose_a_page() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let backing = Backing { shared: true, ..Backing::default() };
    let memory = guest::map(&[Slot::new(GpaRange::of(0, MIB), backing)]).unwrap();
    fault::watch(&memory, terminal::restore).unwrap();
    let jail = Jail::new(Seccomp::True, terminal::restore).unwrap();
    let raw = RawTerminal::enter().unwrap();
    assert!(raw.is_some(), "no terminal that is this process's");
    memory.iter().next().unwrap().file_offset().unwrap().file().set_len(0).unwrap();
    jail.enter(Kind::Vcpu).unwrap();
    let _ = memory.read_obj::<u8>(GuestAddress(0));
    unreachable!("the page is not there");
}
