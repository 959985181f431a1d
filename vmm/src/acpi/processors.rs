// SPDX-License-Identifier: Apache-2.0
//! Processors and memory by node: MADT and SRAT.

use acpi_tables::madt::{EnabledStatus, IoApic, LocalInterruptController, MADT, ProcessorLocalApic};
use acpi_tables::sdt::Sdt;

use super::{Machine, OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::bits::{low8, low32};
use crate::layout;

const IOAPIC_ID: u8 = 0;

/// One enabled local APIC a vCPU, one I/O APIC.
///
/// APIC ids stay below 255, so the short structures serve; the guest switches to x2APIC by CPUID.
pub(super) fn madt(machine: &Machine<'_>) -> MADT {
    let lapic = LocalInterruptController::Address(low32(layout::LAPIC.start));
    let mut table = MADT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION, lapic);
    for (index, id) in machine.processors() {
        table.add_structure(ProcessorLocalApic::new(low8(index.into()), low8(id.into()), EnabledStatus::Enabled));
    }
    table.add_structure(IoApic::new(IOAPIC_ID, low32(layout::IOAPIC.start), 0));
    table
}

/// Processors and memory of node 0 (ACPI 6.5, section 5.2.16).
pub(super) fn srat(machine: &Machine<'_>) -> Sdt {
    const HEADER: u32 = 36;
    const REVISION: u8 = 3;
    const ENABLED: u32 = 1;
    const NODE: u32 = 0;
    let mut table = Sdt::new(*b"SRAT", HEADER, REVISION, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    // Table 5.58: four bytes that are 1 for backward compatibility, eight reserved.
    table.append(1u32);
    table.append(0u64);
    for (_, id) in machine.processors() {
        // Table 5.59, processor local APIC affinity: type 0, 16 bytes, domain in bits 0..8 here and 8..32 below.
        table.append_slice(&[0, 16, NODE.to_le_bytes()[0], low8(id.into())]);
        table.append(ENABLED);
        table.append(0u32);
        table.append(0u32);
    }
    for range in machine.ram {
        // Table 5.60, memory affinity: type 1, 40 bytes.
        table.append_slice(&[1, 40]);
        table.append(NODE);
        table.append(0u16);
        table.append(range.start());
        table.append(range.length());
        table.append(0u32);
        table.append(ENABLED);
        table.append(0u64);
    }
    table
}
