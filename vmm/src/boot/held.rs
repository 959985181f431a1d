// SPDX-License-Identifier: Apache-2.0
//! The memory device, and how the host gives the guest its held memory: address space of this process, and KVM's slot for it.

use std::io;
use std::sync::Arc;

use super::wiring::{DevicesError, host, line, shared};
use crate::chain::chain;
use crate::devices::Bus;
use crate::devices::held::{HeldControl, HeldRegisters, Provider};
use crate::layout;
use crate::memory::guest::advise_huge;
use crate::memory::held::HeldMemory;
use crate::memory::{GpaRange, GuestMemory, Thp};
use crate::vm::{HeldSlot, Vm};

/// The device, and what has memory for it.
pub(super) type Held = (Arc<HeldControl>, Box<dyn Provider>);

/// Puts the memory device on `bus` if `memory` has any that is held. There is a slot for it from the moment at which some of it is there.
pub(super) fn insert_held(
    vm: &Vm,
    memory: &GuestMemory,
    thp: Thp,
    bus: &mut Bus,
) -> Result<Option<Held>, DevicesError> {
    let Some(held) = HeldMemory::of(memory) else { return Ok(None) };
    let irq = line(vm, layout::GSI_HELD_MEMORY)?;
    let control = HeldControl::new(held.range().length(), held.there(), irq).map_err(host("memory device"))?;
    bus.insert(layout::HELD_MEMORY, shared(HeldRegisters::new(Arc::clone(&control))))?;
    let mut slot = vm.held_slot(held.clone());
    if held.there() > 0 {
        slot.add()?;
    }
    Ok(Some((control, Box::new(Host { slot, held, memory: memory.clone(), huge: thp != Thp::Off }))))
}

/// This process and KVM. Fields are dropped in this order.
struct Host {
    slot: HeldSlot,
    held: HeldMemory,
    memory: GuestMemory,
    /// Whether huge pages are asked for. What a guest grows by it is to use, and the memmap of a section is one of them.
    huge: bool,
}

impl Provider for Host {
    fn grow(&mut self, to: u64) -> io::Result<()> {
        let from = self.held.there();
        self.held.grow(to)?;
        if self.huge && to > from {
            let start = self.held.range().start();
            if let Err(error) = advise_huge(&self.memory, GpaRange::new(start + from, start + to)) {
                tracing::info!(%error, "no transparent huge pages");
            }
        }
        self.slot.add().map_err(|error| {
            // The guest has not been asked: nobody uses it.
            let back = if to > from { self.held.shrink(from) } else { Ok(()) };
            io::Error::other(back.map_or_else(|error| error.to_string(), |()| chain(&error)))
        })
    }

    fn shrink(&mut self, to: u64) -> io::Result<()> {
        self.held.shrink(to)
    }
}
