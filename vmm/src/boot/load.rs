// SPDX-License-Identifier: Apache-2.0
//! What the guest finds in its memory besides the kernel: initramfs, command line, page tables, zero page, hand-off, ACPI.

use flatboot_handoff::{SETUP_DATA_TYPE, TableError};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::acpi::{self, AcpiError};
use crate::bits::{index, low32};
use crate::config::{Config, InputFile, SerialConfig};
use crate::cpu::registers;
use crate::kernel::{Image, zero_page};
use crate::layout;
use crate::memory::{GpaRange, GuestMemory, MemoryPlan};

/// `struct setup_data` before its payload: next (u64), type (u32), length (u32).
const SETUP_DATA_HEADER: u64 = 16;

/// Why guest memory could not be filled.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The initramfs changed or could not be read.
    #[error("initramfs {path}: cannot be read into guest memory at {range}")]
    Initramfs {
        /// The file.
        path: String,
        /// Where it goes.
        range: GpaRange,
        /// Why.
        source: GuestMemoryError,
    },
    /// A boot structure is outside of guest memory.
    #[error("boot tables cannot be written to guest memory")]
    Write(#[from] GuestMemoryError),
    /// The plan breaks the hand-off's own rules.
    #[error("memory hand-off")]
    HandOff(#[from] TableError),
    /// The hand-off has no room.
    #[error("memory hand-off needs {needed} bytes, {room} are reserved for it; use fewer memory holes")]
    HandOffTooLarge {
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that the layout reserves.
        room: u64,
    },
    /// ACPI.
    #[error(transparent)]
    Acpi(#[from] AcpiError),
}

/// What the tables follow from.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) config: &'a Config,
    pub(super) plan: &'a MemoryPlan,
    pub(super) image: &'a Image,
    pub(super) initramfs: Option<GpaRange>,
    pub(super) virtio_devices: usize,
}

/// Reads the initramfs, if there is one, into its place.
pub(super) fn initramfs(
    memory: &GuestMemory,
    file: Option<&InputFile>,
    range: Option<GpaRange>,
) -> Result<(), LoadError> {
    let (Some(file), Some(range)) = (file, range) else {
        return Ok(());
    };
    let mut source = file.file();
    memory
        .read_exact_volatile_from(GuestAddress(range.start()), &mut source, index(range.length()))
        .map_err(|source| LoadError::Initramfs { path: file.path().display().to_string(), range, source })
}

/// Writes everything that the kernel reads before it owns its memory.
pub(super) fn tables(memory: &GuestMemory, tables: &Tables<'_>) -> Result<(), LoadError> {
    let Tables { config, plan, image, initramfs, virtio_devices } = *tables;
    registers::write_tables(memory)?;

    let cmdline = config.cmdline.as_str().as_bytes();
    memory.write_slice(cmdline, GuestAddress(layout::CMDLINE.start))?;
    memory.write_obj(0u8, GuestAddress(layout::CMDLINE.start + cmdline.len() as u64))?;

    hand_off(memory, plan)?;
    let params = zero_page::build(image.setup_header(), cmdline.len(), initramfs, plan.e820());
    memory.write_obj(params, GuestAddress(layout::ZERO_PAGE.start))?;

    acpi::write(
        memory,
        &acpi::Machine {
            vcpus: config.cpus.get(),
            virtio_devices,
            serial: !matches!(config.serial, SerialConfig::Off),
            ram: plan.slots(),
        },
    )?;
    Ok(())
}

/// The hand-off as a `setup_data` node (section `setup_data` of `Documentation/arch/x86/boot.rst`), the only one.
fn hand_off(memory: &GuestMemory, plan: &MemoryPlan) -> Result<(), LoadError> {
    let table = plan.hand_off()?;
    let room = layout::HANDOFF.end - layout::HANDOFF.start;
    let needed = SETUP_DATA_HEADER + table.len() as u64;
    if needed > room {
        return Err(LoadError::HandOffTooLarge { needed, room });
    }
    let base = layout::HANDOFF.start;
    memory.write_obj(0u64, GuestAddress(base))?;
    memory.write_obj(SETUP_DATA_TYPE, GuestAddress(base + 8))?;
    memory.write_obj(low32(table.len() as u64), GuestAddress(base + 12))?;
    memory.write_slice(&table, GuestAddress(base + SETUP_DATA_HEADER))?;
    Ok(())
}
