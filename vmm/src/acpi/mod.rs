// SPDX-License-Identifier: Apache-2.0
//! ACPI tables of a hardware-reduced machine (ACPI 6.5, section 4.1): RSDP, XSDT, FADT, DSDT, MADT, SRAT, and
//! SLIT if there is more than one node.
//!
//! A guest without firmware finds them in its memory ([`write`](fn@write)). Firmware places them itself, by a [script](loader).

mod dsdt;
mod fixed;
pub mod loader;
mod machine;
mod processors;
mod relocatable;

use relocatable::Tables;
use vm_memory::{Bytes, GuestAddress};

use crate::layout;
use crate::memory::GuestMemory;

pub use machine::Machine;

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
