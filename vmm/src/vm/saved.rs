// SPDX-License-Identifier: Apache-2.0
//! What KVM gives away of a VM besides its vCPUs, and takes for another one.

use std::time::{SystemTime, UNIX_EPOCH};

use kvm_bindings::{KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, kvm_clock_data, kvm_irqchip};

use super::{Vm, VmError, ioctl};
use crate::state::{Controllers, MachineState, VcpuState};

/// In the order in which a state has them.
const CHIPS: [u32; 3] = [KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC];

impl Vm {
    /// What it is like now, while no vCPU runs; they are `vcpus`.
    pub fn save(&self, vcpus: Vec<VcpuState>) -> Result<MachineState, VmError> {
        let clock = self.fd.get_clock().map_err(ioctl("KVM_GET_CLOCK"))?.clock;
        Ok(MachineState {
            cpuid: self.cpuid.as_slice().to_vec(),
            tsc_deadline: self.basis.tsc_deadline,
            taken_at: now(),
            clock,
            controllers: self.has_controllers().then(|| self.save_controllers()).transpose()?,
            vcpus,
        })
    }

    fn save_controllers(&self) -> Result<Controllers, VmError> {
        let mut chips = CHIPS.map(|chip_id| kvm_irqchip { chip_id, ..Default::default() });
        for chip in &mut chips {
            self.fd.get_irqchip(chip).map_err(ioctl("KVM_GET_IRQCHIP"))?;
        }
        Ok(Controllers { chips, pit: self.fd.get_pit2().map_err(ioctl("KVM_GET_PIT2"))? })
    }

    /// Makes it what was saved `nanoseconds` ago. Its vCPUs are that already: what the controllers have for them goes to them.
    pub fn restore(&self, state: &MachineState, nanoseconds: u64) -> Result<(), VmError> {
        if state.controllers.is_some() != self.has_controllers() {
            return Err(VmError::Controllers);
        }
        if let Some(Controllers { chips, pit }) = &state.controllers {
            self.fd.set_pit2(pit).map_err(ioctl("KVM_SET_PIT2"))?;
            for (chip, chip_id) in chips.iter().zip(CHIPS) {
                self.fd.set_irqchip(&kvm_irqchip { chip_id, ..*chip }).map_err(ioctl("KVM_SET_IRQCHIP"))?;
            }
        }
        let clock = kvm_clock_data { clock: state.clock.saturating_add(nanoseconds), ..Default::default() };
        self.fd.set_clock(&clock).map_err(ioctl("KVM_SET_CLOCK"))
    }

    /// Whether KVM has them, and not only the local APICs.
    fn has_controllers(&self) -> bool {
        !self.basis.cpus.needs_wide_ids()
    }
}

/// Nanoseconds that have passed since `taken_at`, which a state has. A clock that was set back since has not.
#[must_use]
pub fn age(taken_at: u64) -> u64 {
    now().saturating_sub(taken_at)
}

/// Since 1970, UTC, in ns.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
