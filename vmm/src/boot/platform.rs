// SPDX-License-Identifier: Apache-2.0
//! The machine that the payload finds.

use crate::acpi;
use crate::config::{MachineConfig, SerialConfig};
use crate::memory::{GuestMemory, MemoryPlan};

/// The machine that the payload finds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Platform<'a> {
    pub(super) config: &'a MachineConfig,
    pub(super) plan: &'a MemoryPlan,
    pub(super) memory: &'a GuestMemory,
    pub(super) virtio_devices: usize,
}

impl<'a> Platform<'a> {
    /// What the ACPI tables say.
    pub(super) fn acpi(self) -> acpi::Machine<'a> {
        let Self { config, plan, virtio_devices, .. } = self;
        let serial = !matches!(config.serial, SerialConfig::Off);
        acpi::Machine {
            cpus: config.cpus.topology,
            virtio_devices,
            serial,
            held_memory: plan.held().is_some(),
            nodes: &config.nodes,
            slots: plan.slots(),
        }
    }
}
