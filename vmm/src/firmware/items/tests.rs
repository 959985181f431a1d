// SPDX-License-Identifier: Apache-2.0

use std::fs;

use tempfile::TempDir;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::config::{Cmdline, KernelConsole};
use crate::cpu::topology::CpuTopology;
use crate::devices::bus::BusDevice;
use crate::devices::fw_cfg::FwCfg;
use crate::devices::running::Running;
use crate::images;
use crate::memory::{AddressWidth, GuestMemory, MemorySize, PayloadKind, PlanInput};
use crate::numa::Nodes;

/// A kernel's setup part: the boot sector and one more.
const SETUP: u64 = 1024;

fn plan(mib: u64) -> MemoryPlan {
    let size = MemorySize::try_from(mib << 20).unwrap();
    MemoryPlan::new(&PlanInput::new(size), PayloadKind::Firmware, AddressWidth::reported(40)).unwrap()
}

fn description<'a>(plan: &'a MemoryPlan, hand_off: &'a HandOff, kernel: Option<&'a KernelConfig>) -> Description<'a> {
    let acpi = acpi::Machine {
        cpus: CpuTopology::flat(7),
        virtio_devices: 2,
        held_memory: false,
        serial: true,
        nodes: Nodes::leaked(7),
        slots: plan.slots(),
    };
    Description { plan, hand_off, acpi, kernel: kernel.map(|kernel| (kernel, SETUP)) }
}

/// The device as firmware meets it, by DMA.
struct Firmware {
    device: FwCfg,
    memory: GuestMemory,
    _thread: Option<Running>,
}

/// Where requests are in guest memory, and what they fetch.
const REQUEST: u32 = 0x100;
const TARGET: u64 = 0x1000;

impl Firmware {
    fn new(machine: &Description<'_>) -> Self {
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let mut device = FwCfg::new(items(machine).unwrap(), memory.clone());
        let thread = device.start(|| Some(())).unwrap();
        Self { device, memory, _thread: thread }
    }

    fn item(&mut self, key: u16, length: usize) -> Vec<u8> {
        let select_and_read = u32::from(key) << 16 | 0b1010;
        let words = [select_and_read, u32::try_from(length).unwrap(), 0, u32::try_from(TARGET).unwrap()];
        let control = GuestAddress(REQUEST.into());
        self.memory.write_obj(words.map(u32::to_be), control).unwrap();
        assert_eq!(self.device.write(8, &REQUEST.to_be_bytes()), None);
        while self.memory.read_obj::<u32>(control).unwrap() != 0 {
            std::thread::yield_now();
        }
        let mut data = vec![0; length];
        self.memory.read_slice(&mut data, GuestAddress(TARGET)).unwrap();
        data
    }

    fn word(&mut self, key: u16) -> u32 {
        u32::from_le_bytes(self.item(key, 4).try_into().unwrap())
    }

    /// Names, keys and lengths of all files.
    fn directory(&mut self) -> Vec<(String, u16, usize)> {
        let count = u32::from_be_bytes(self.item(key::DIRECTORY, 4).try_into().unwrap()) as usize;
        let directory = self.item(key::DIRECTORY, 4 + count * 64);
        let entry = |entry: &[u8]| {
            let name = entry[8..].iter().copied().take_while(|byte| *byte != 0).collect();
            let length = u32::from_be_bytes(entry[..4].try_into().unwrap()) as usize;
            (String::from_utf8(name).unwrap(), u16::from_be_bytes([entry[4], entry[5]]), length)
        };
        directory[4..].chunks(64).map(entry).collect()
    }

    fn file(&mut self, name: &str) -> Option<Vec<u8>> {
        let (_, key, length) = self.directory().into_iter().find(|(known, ..)| known == name)?;
        Some(self.item(key, length))
    }
}

#[test]
fn what_every_machine_has() {
    let plan = plan(1024);
    let mut firmware = Firmware::new(&description(&plan, &HandOff::Planned, None));
    assert_eq!(firmware.item(key::SIGNATURE, 4), b"QEMU");
    assert_eq!(firmware.word(key::ID), 3);
    assert_eq!((firmware.item(key::CPUS, 3), firmware.item(key::MAX_CPUS, 3)), (vec![7, 0, 0], vec![7, 0, 0]));
    let names: Vec<_> = firmware.directory().into_iter().map(|(name, ..)| name).collect();
    assert_eq!(
        names,
        ["etc/acpi/rsdp", "etc/acpi/tables", "etc/e820", "etc/fdt", "etc/table-loader", "opt/org.flatboot/plan"]
    );
    // Without a kernel there is no size of one.
    for key in [key::KERNEL_SIZE, key::SETUP_SIZE, key::INITRD_SIZE, key::CMDLINE_SIZE] {
        assert_eq!(firmware.word(key), 0, "{key:#x}");
    }
    let acpi = loader::files(&description(&plan, &HandOff::Planned, None).acpi);
    assert_eq!(firmware.file("etc/acpi/tables"), Some(acpi.tables));
    assert_eq!(firmware.file("etc/acpi/rsdp"), Some(acpi.rsdp));
    assert_eq!(firmware.file("etc/table-loader"), Some(acpi.script));
    assert_eq!(firmware.file("etc/fdt"), Some(device_tree::build(2).unwrap()));
}

#[test]
fn e820_has_all_ram_and_nothing_else() {
    for (mib, expected) in [(64, vec![(0, 64 << 20)]), (1024, vec![(0, 512 << 20), (1 << 32, 512u64 << 20)])] {
        let mut firmware = Firmware::new(&description(&plan(mib), &HandOff::Off, None));
        let map = firmware.file("etc/e820").unwrap();
        assert_eq!(map.len(), expected.len() * 20);
        for (entry, (start, length)) in map.chunks(20).zip(expected) {
            assert_eq!(entry[..8], u64::to_le_bytes(start));
            assert_eq!(entry[8..16], u64::to_le_bytes(length));
            assert_eq!(entry[16..], [1, 0, 0, 0]);
        }
    }
}

#[test]
fn the_plan_is_what_a_guest_without_firmware_gets() {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("table");
    fs::write(&path, b"no table").unwrap();
    let plan = plan(1024);
    let table = plan.hand_off().unwrap();
    let file = HandOff::File(InputFile::open(HANDOFF_FILE, &path).unwrap());
    for (hand_off, expected) in
        [(HandOff::Planned, Some(table)), (HandOff::Off, None), (file, Some(b"no table".to_vec()))]
    {
        assert_eq!(Firmware::new(&description(&plan, &hand_off, None)).file(PLAN_FILE), expected);
    }
}

fn kernel(files: &TempDir, initramfs: Option<&[u8]>) -> KernelConfig {
    let open = |name: &str, content: &[u8]| {
        let path = files.path().join(name);
        fs::write(&path, content).unwrap();
        InputFile::open(KERNEL, &path).unwrap()
    };
    KernelConfig {
        image: open("kernel", &images::bzimage()),
        initramfs: initramfs.map(|content| open("initramfs", content)),
        cmdline: Cmdline::new("quiet", Some(KernelConsole::Serial)).unwrap(),
    }
}

#[test]
fn a_kernel_comes_in_the_parts_that_qemu_has() {
    let files = tempfile::tempdir().unwrap();
    let kernel = kernel(&files, Some(b"070701"));
    let plan = plan(64);
    let mut firmware = Firmware::new(&description(&plan, &HandOff::Off, Some(&kernel)));
    let image = images::bzimage();
    let (setup, rest) = image.split_at(1024);
    let cmdline = b"console=ttyS0 swiotlb=noforce io_delay=none pci=off reboot=acpi quiet\0";
    for (size, data, expected) in [
        (key::SETUP_SIZE, key::SETUP_DATA, setup),
        (key::KERNEL_SIZE, key::KERNEL_DATA, rest),
        (key::INITRD_SIZE, key::INITRD_DATA, b"070701"),
        (key::CMDLINE_SIZE, key::CMDLINE_DATA, cmdline),
    ] {
        assert_eq!(firmware.word(size) as usize, expected.len());
        // Behind the end there are zeroes, not the next part.
        assert_eq!(firmware.item(data, expected.len() + 4), [expected, &[0; 4]].concat());
    }
    let mut bare = Firmware::new(&description(&plan, &HandOff::Off, Some(&self::kernel(&files, None))));
    assert_eq!((bare.word(key::INITRD_SIZE), bare.item(key::INITRD_DATA, 2)), (0, vec![0, 0]));
}
