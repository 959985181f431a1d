// SPDX-License-Identifier: Apache-2.0
//! ACPI tables of a hardware-reduced machine (ACPI 6.5, section 4.1): RSDP, XSDT, FADT, DSDT, MADT, SRAT.

mod dsdt;
mod fixed;
mod processors;

use acpi_tables::Aml;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;
use vm_memory::{Bytes, GuestAddress};

use crate::layout;
use crate::memory::{GpaRange, GuestMemory};

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
    /// Number of vCPUs; APIC ids are 0 to this, less one.
    pub vcpus: u8,
    /// Number of virtio-mmio devices, in slot order.
    pub virtio_devices: usize,
    /// Whether there is a serial port.
    pub serial: bool,
    /// RAM, all of NUMA node 0.
    pub ram: &'a [GpaRange],
}

/// Writes all tables into [`layout::ACPI`]; the RSDP is its first byte.
pub fn write(memory: &GuestMemory, machine: &Machine<'_>) -> Result<(), AcpiError> {
    let mut writer = Writer { memory, next: layout::ACPI.start + 64 };
    let dsdt = writer.put(&bytes(&dsdt::build(machine)))?;
    let tables = [
        writer.put(&bytes(&fixed::fadt(dsdt)))?,
        writer.put(&bytes(&processors::madt(machine.vcpus)))?,
        writer.put(&bytes(&processors::srat(machine)))?,
    ];
    let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    for table in tables {
        xsdt.add_entry(table);
    }
    let xsdt = writer.put(&bytes(&xsdt))?;
    memory.write_slice(&bytes(&Rsdp::new(OEM_ID, xsdt)), GuestAddress(layout::ACPI.start))?;
    Ok(())
}

fn bytes(table: &dyn Aml) -> Vec<u8> {
    let mut out = Vec::new();
    table.to_aml_bytes(&mut out);
    out
}

/// Lays tables one after another, 16-byte aligned.
struct Writer<'a> {
    memory: &'a GuestMemory,
    next: u64,
}

impl Writer<'_> {
    fn put(&mut self, table: &[u8]) -> Result<u64, AcpiError> {
        let at = self.next;
        let end = at + table.len() as u64;
        if end > layout::ACPI.end {
            return Err(AcpiError::TooLarge {
                needed: end - layout::ACPI.start,
                available: layout::ACPI.end - layout::ACPI.start,
            });
        }
        self.memory.write_slice(table, GuestAddress(at))?;
        self.next = end.next_multiple_of(16);
        Ok(at)
    }
}

#[cfg(test)]
mod tests;
