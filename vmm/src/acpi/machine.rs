// SPDX-License-Identifier: Apache-2.0
//! What the tables describe, and who has made it.

use crate::cpu::topology::CpuTopology;
use crate::memory::Slot;
use crate::numa::Nodes;

pub(super) const OEM_ID: [u8; 6] = *b"FLATBT";
pub(super) const OEM_TABLE_ID: [u8; 8] = *b"FLATBOOT";
pub(super) const OEM_REVISION: u32 = 1;

/// What the tables describe.
#[derive(Debug)]
pub struct Machine<'a> {
    /// The vCPUs, in groups.
    pub cpus: CpuTopology,
    /// Number of virtio-mmio devices, in slot order.
    pub virtio_devices: usize,
    /// Whether there is a serial port.
    pub serial: bool,
    /// Whether there is a memory device.
    pub held_memory: bool,
    /// The nodes that they and memory lie on.
    pub nodes: &'a Nodes,
    /// Memory.
    pub slots: &'a [Slot],
}

impl Machine<'_> {
    /// Index and APIC id of each vCPU. There are at most 65536.
    pub(super) fn processors(&self) -> impl Iterator<Item = (u16, u32)> {
        let cpus = self.cpus;
        let last = u16::try_from(cpus.total() - 1).unwrap_or(u16::MAX);
        (0..=last).map(move |index| (index, cpus.apic_id(index)))
    }
}
