// SPDX-License-Identifier: Apache-2.0
//! What firmware is told: the items of `fw_cfg`.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flatboot_handoff::PLAN_FILE;

use super::{FirmwareError, device_tree};
use crate::acpi::{self, loader};
use crate::bits::{index, low16, low32};
use crate::config::{HANDOFF_FILE, HandOff, INITRAMFS, InputFile, KERNEL, KernelConfig};
use crate::devices::fw_cfg::{Content, FileName, Items, key};
use crate::field::Field;
use crate::memory::{E820Kind, GpaRange, MemoryPlan};

const E820: FileName = FileName::new("etc/e820");
const DEVICE_TREE: FileName = FileName::new("etc/fdt");
const ACPI_RSDP: FileName = FileName::new(loader::RSDP_FILE);
const ACPI_TABLES: FileName = FileName::new(loader::TABLES_FILE);
const ACPI_SCRIPT: FileName = FileName::new(loader::SCRIPT_FILE);
const PLAN: FileName = FileName::new(PLAN_FILE);

/// The machine, as firmware must know it.
#[derive(Debug)]
pub struct Description<'a> {
    /// Its RAM, and what the hand-off says of it.
    pub plan: &'a MemoryPlan,
    /// Which hand-off the guest gets.
    pub hand_off: &'a HandOff,
    /// What the ACPI tables say.
    pub acpi: acpi::Machine<'a>,
    /// The kernel to boot, with the length of its setup part in bytes; without, firmware looks on the disks.
    pub kernel: Option<(&'a KernelConfig, u64)>,
}

/// All items for that machine.
pub fn items(machine: &Description<'_>) -> Result<Items, FirmwareError> {
    let acpi = loader::files(&machine.acpi);
    let tree = device_tree::build(machine.acpi.virtio_devices);
    let tree = tree.map_err(|error| FirmwareError::DeviceTree(error.to_string()))?;
    let mut files = vec![
        (E820, Content::Bytes(e820(machine.plan.ram()))),
        (DEVICE_TREE, Content::Bytes(tree)),
        (ACPI_RSDP, Content::Bytes(acpi.rsdp)),
        (ACPI_TABLES, Content::Bytes(acpi.tables)),
        (ACPI_SCRIPT, Content::Bytes(acpi.script)),
    ];
    files.extend(plan(machine)?.map(|content| (PLAN, content)));

    let vcpus = low16(machine.acpi.cpus.total());
    let mut numbered = vec![(key::CPUS, Content::half(vcpus)), (key::MAX_CPUS, Content::half(vcpus))];
    if let Some((kernel, setup)) = machine.kernel {
        numbered.extend(kernel_items(kernel, setup)?);
    }
    Ok(Items::new(numbered, files))
}

/// The bytes that a guest without firmware would find.
fn plan(machine: &Description<'_>) -> Result<Option<Content>, FirmwareError> {
    Ok(match machine.hand_off {
        HandOff::Planned => Some(Content::Bytes(machine.plan.hand_off()?)),
        HandOff::Off => None,
        HandOff::File(file) => Some(Content::Bytes(whole(HANDOFF_FILE, file)?)),
    })
}

/// A bzImage in two parts, as QEMU has it; the initramfs; the command line with its terminating zero.
fn kernel_items(kernel: &KernelConfig, setup: u64) -> Result<Vec<(u16, Content)>, FirmwareError> {
    let image = &kernel.image;
    let rest = image.length().saturating_sub(setup);
    let cmdline = Content::Bytes(kernel.cmdline.to_bytes_with_nul());
    let mut items = vec![
        (key::SETUP_SIZE, Content::word(low32(setup))),
        (key::SETUP_DATA, part(KERNEL, image, 0, setup)?),
        (key::KERNEL_SIZE, Content::word(low32(rest))),
        (key::KERNEL_DATA, part(KERNEL, image, setup, rest)?),
        (key::CMDLINE_SIZE, Content::word(low32(cmdline.length()))),
        (key::CMDLINE_DATA, cmdline),
    ];
    if let Some(initramfs) = &kernel.initramfs {
        let length = initramfs.length();
        items.push((key::INITRD_SIZE, Content::word(low32(length))));
        items.push((key::INITRD_DATA, part(INITRAMFS, initramfs, 0, length)?));
    }
    Ok(items)
}

/// `length` bytes of `file` from `start`, read when firmware asks for them.
fn part(field: Field, file: &InputFile, start: u64, length: u64) -> Result<Content, FirmwareError> {
    let handle = file.file().try_clone();
    let handle = handle.map_err(|source| FirmwareError::Handle { field, path: file.path().to_owned(), source })?;
    Ok(Content::File { file: Arc::new(handle), start, length })
}

/// All of a small file.
fn whole(field: Field, file: &InputFile) -> Result<Vec<u8>, FirmwareError> {
    let mut bytes = vec![0; index(file.length())];
    let read = file.file().read_exact_at(&mut bytes, 0);
    read.map_err(|source| FirmwareError::Handle { field, path: file.path().to_owned(), source })?;
    Ok(bytes)
}

/// `struct e820_entry`: address, size, type; one for each range of RAM. Firmware takes what it needs from it.
fn e820(ram: &[GpaRange]) -> Vec<u8> {
    let entry = |range: &GpaRange| {
        let kind = E820Kind::Ram as u32;
        [&range.start().to_le_bytes()[..], &range.length().to_le_bytes(), &kind.to_le_bytes()].concat()
    };
    ram.iter().flat_map(entry).collect()
}

#[cfg(test)]
mod tests;
