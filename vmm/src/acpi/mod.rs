// SPDX-License-Identifier: Apache-2.0
//! ACPI tables of a hardware-reduced machine (ACPI 6.5, section 4.1): RSDP, XSDT, FADT, DSDT, MADT, SRAT, and
//! SLIT if there is more than one node.
//!
//! A guest without firmware finds them in its memory ([`write`](fn@write)). Firmware places them itself, by a [script](loader).

mod dsdt;
mod fixed;
pub mod loader;
mod processors;
mod relocatable;

use relocatable::Tables;
use vm_memory::{Bytes, GuestAddress};

use crate::cpu::topology::CpuTopology;
use crate::layout;
use crate::memory::{GuestMemory, Slot};
use crate::numa::Nodes;

const OEM_ID: [u8; 6] = *b"FLATBT";
const OEM_TABLE_ID: [u8; 8] = *b"FLATBOOT";
const OEM_REVISION: u32 = 1;

/// Why the tables could not be written.
#[derive(Debug, thiserror::Error)]
pub enum AcpiError {
    /// More processors or devices than the reserved range has room for.
    #[error("ACPI tables need {needed} bytes, {available} are reserved for them")]
    TooLarge {
        /// Bytes needed.
        needed: u64,
        /// Bytes reserved in the layout.
        available: u64,
    },
    /// Guest memory does not cover the reserved range.
    #[error("ACPI tables cannot be written to guest memory")]
    Write(#[from] vm_memory::GuestMemoryError),
}

/// What the tables describe.
#[derive(Debug)]
pub struct Machine<'a> {
    /// The vCPUs, in groups.
    pub cpus: CpuTopology,
    /// Number of virtio-mmio devices, in slot order.
    pub virtio_devices: usize,
    /// Whether there is a serial port.
    pub serial: bool,
    /// The nodes that they and memory lie on.
    pub nodes: &'a Nodes,
    /// Memory.
    pub slots: &'a [Slot],
}

impl Machine<'_> {
    /// Index and APIC id of each vCPU. There are at most 65536.
    fn processors(&self) -> impl Iterator<Item = (u16, u32)> {
        let cpus = self.cpus;
        let last = u16::try_from(cpus.total() - 1).unwrap_or(u16::MAX);
        (0..=last).map(move |index| (index, cpus.apic_id(index)))
    }
}

/// Writes all tables into [`layout::ACPI`]; the RSDP is its first byte.
pub fn write(memory: &GuestMemory, machine: &Machine<'_>) -> Result<(), AcpiError> {
    const RSDP_ROOM: u64 = 64;
    let base = layout::ACPI.start + RSDP_ROOM;
    let (rsdp, tables) = Tables::new(machine).at(base);
    let (needed, available) = (RSDP_ROOM + tables.len() as u64, layout::ACPI.end - layout::ACPI.start);
    if needed > available {
        return Err(AcpiError::TooLarge { needed, available });
    }
    memory.write_slice(&rsdp, GuestAddress(layout::ACPI.start))?;
    memory.write_slice(&tables, GuestAddress(base))?;
    Ok(())
}

#[cfg(test)]
mod tests;
