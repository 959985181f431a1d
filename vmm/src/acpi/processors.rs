// SPDX-License-Identifier: Apache-2.0
//! Processors and memory by node: MADT, SRAT and SLIT.

use acpi_tables::sdt::Sdt;
use acpi_tables::slit::SLIT;

use super::machine::{Machine, OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use crate::bits::{index, low8, low32};
use crate::layout;
use crate::numa::{Nodes, REMOTE};

const IOAPIC_ID: u8 = 0;
/// APIC ids from here on have structures of their own (ACPI 6.5, section 5.2.12.12).
const FIRST_WIDE_ID: u32 = 255;
const ENABLED: u32 = 1;

/// One enabled local APIC a vCPU, one I/O APIC; the guest switches to x2APIC by CPUID. The crate's table has no structure for x2APICs,
/// so all of it is written here (ACPI 6.5, section 5.2.12).
pub(super) fn madt(machine: &Machine<'_>) -> Sdt {
    const HEADER: u32 = 36;
    const REVISION: u8 = 5;
    let mut table = Sdt::new(*b"APIC", HEADER, REVISION, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    // Where local APICs are, and that there are no older interrupt controllers.
    table.append(low32(layout::LAPIC.start));
    table.append(0u32);
    for (uid, id) in machine.processors() {
        if id < FIRST_WIDE_ID {
            // Table 5.21, processor local APIC: type 0, 8 bytes.
            table.append_slice(&[0, 8, low8(uid.into()), low8(id.into())]);
            table.append(ENABLED);
        } else {
            // Table 5.34, processor local x2APIC: type 9, 16 bytes.
            table.append_slice(&[9, 16, 0, 0]);
            for word in [id, ENABLED, uid.into()] {
                table.append(word);
            }
        }
    }
    if machine.cpus.needs_wide_ids() {
        // Table 5.35, local x2APIC NMI: type 10, 12 bytes; LINT1 of all processors, as is usual.
        table.append_slice(&[10, 12, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
    }
    // Table 5.24, I/O APIC: type 1, 12 bytes; its first line is line 0.
    table.append_slice(&[1, 12, IOAPIC_ID, 0]);
    for word in [low32(layout::IOAPIC.start), 0] {
        table.append(word);
    }
    table
}

/// Which processors and which memory belong to which node (ACPI 6.5, section 5.2.16). Linux numbers nodes as it comes across them
/// here, and [`Nodes`](crate::numa::Nodes) are in that order.
pub(super) fn srat(machine: &Machine<'_>) -> Sdt {
    const HEADER: u32 = 36;
    const REVISION: u8 = 3;
    let mut table = Sdt::new(*b"SRAT", HEADER, REVISION, OEM_ID, OEM_TABLE_ID, OEM_REVISION);
    // Table 5.58: four bytes that are 1 for backward compatibility, eight reserved.
    table.append(1u32);
    table.append(0u64);
    for (_, node) in machine.nodes.iter() {
        for &index in &node.cpus {
            let id = machine.cpus.apic_id(index);
            if id >= FIRST_WIDE_ID {
                // Table 5.61, processor local x2APIC affinity: type 2, 24 bytes.
                table.append_slice(&[2, 24, 0, 0]);
                for word in [node.domain, id, ENABLED, 0, 0] {
                    table.append(word);
                }
                continue;
            }
            // Table 5.59, processor local APIC affinity: type 0, 16 bytes, domain in bits 0..8 here and 8..32 below.
            let [domain, high @ ..] = node.domain.to_le_bytes();
            table.append_slice(&[0, 16, domain, low8(id.into())]);
            table.append(ENABLED);
            table.append(0u8);
            table.append_slice(&high);
            table.append(0u32);
        }
    }
    for slot in machine.slots {
        // Table 5.60, memory affinity: type 1, 40 bytes.
        table.append_slice(&[1, 40]);
        table.append(machine.nodes.domain(slot.node));
        table.append(0u16);
        table.append(slot.range.start());
        table.append(slot.range.length());
        table.append(0u32);
        table.append(ENABLED);
        table.append(0u64);
    }
    table
}

/// How far nodes are from each other; none if there is only one. The table has a row for every domain up to the largest, whether there
/// is a node or not.
pub(super) fn slit(nodes: &Nodes) -> Option<SLIT> {
    if nodes.count() < 2 {
        return None;
    }
    let domains = nodes.iter().map(|(_, node)| node.domain).max()? + 1;
    let mut table = SLIT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION, domains);
    let at = |domain: u32| index(domain.into());
    for one in 0..domains {
        for other in 0..one {
            table.set_distance(at(one), at(other), REMOTE);
        }
    }
    for (_, node) in nodes.iter() {
        for ((_, other), distance) in nodes.iter().zip(&node.distances) {
            if other.domain != node.domain {
                table.set_distance(at(node.domain), at(other.domain), *distance);
            }
        }
    }
    Some(table)
}
