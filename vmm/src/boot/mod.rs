// SPDX-License-Identifier: Apache-2.0
//! The boot story: from a valid configuration to a running guest, one named phase after another.

mod backing;
mod devices;
mod entry;
mod error;
mod held;
mod load;
mod payload;
mod platform;
mod restore;
mod running;
mod serial;
mod typed;
mod vcpus;
mod virtio;
mod wiring;

use std::io;
use std::sync::Arc;

use crate::config::{Config, Payload};
use crate::cpu::topology::CpuTopology;
use crate::devices::terminal;
use crate::memory::host::Host;
use crate::memory::{AddressWidth, MemoryPlan, PlanInput, fault};
use crate::observe::counters::Counters;
use crate::vm::{self, Vm};
use devices::Devices;
use payload::Inspected;
use platform::Platform;

pub use devices::Handles;
pub use entry::{Context, Entry};
pub use error::{BootError, RestoreError};
pub use restore::{Origin, restore};
pub use running::RunningVm;

/// Boots the VM that `config` describes, until its vCPUs run. `ready` is called when nothing takes long any more.
///
/// The order is part of the product: whatever can fail on the user's input comes before anything is created; vCPU threads start
/// before the kernel is loaded, so that they back memory meanwhile; the boot CPU goes last. What the user wants backed
/// beforehand is backed meanwhile, too, by threads of its own: before the guest runs, or not at all.
pub fn boot(
    config: Config,
    context: &Context,
    ready: impl FnOnce(&Context) -> io::Result<()>,
) -> Result<RunningVm, BootError> {
    let Config { machine: mut config, payload, .. } = config;
    let timeline = &context.timeline;
    let payload = Inspected::new(&payload, config.cpus.topology)?;
    timeline.phase(payload.phase());

    // If it does not open, that is said only after memory is planned and checked, for the widest addresses.
    let kvm = vm::open_and_measure();
    timeline.phase("KVM opened");
    let width = kvm.as_ref().map_or(AddressWidth::WIDEST, |(_, width)| *width);
    let plan = MemoryPlan::new(&config.memory, payload.kind(), width)?;
    payload.check_memory(&plan, kvm.as_ref().ok().map(|(kvm, _)| kvm))?;
    Host::this().check(&plan)?;
    timeline.phase("memory planned");

    let (kvm, _) = kvm?;
    let memory = backing::map(&plan)?;
    // Before anybody touches it.
    fault::watch(&memory, terminal::restore).map_err(BootError::Signals)?;
    timeline.phase("memory mapped");
    let mut vm = Vm::create(&kvm, &memory, config.cpus.topology, &config.nodes, config.cpus.nested, None)?;
    timeline.phase("VM created");
    let mut devices = Devices::build(&mut config, payload.kind(), &vm, &memory, timeline)?;
    timeline.phase("devices built");
    let platform = Platform { config: &config, plan: &plan, memory: &memory, virtio_devices: devices.virtio };
    payload.install(platform, &kvm, &mut vm, &mut devices, context)?;

    let counters = Arc::new(Counters::new(config.cpus.boot.get(), devices.counters));
    let (shared, mut vcpus) = vcpus::start(vm, devices.buses, &counters, platform, context, None)?;
    timeline.phase("vCPU threads started");
    let prefaulting = backing::prefault(&plan, &memory, timeline)?;
    let backends = devices.backends.start(context)?;
    let start = payload.load(platform, timeline)?;
    prefaulting.finish()?;
    vcpus.until_ready()?;

    ready(context).map_err(BootError::Signals)?;
    let devices = backends.open(context)?;
    context.close(&devices.sockets)?;
    let vcpus = vcpus.release(start)?;
    timeline.phase("every vCPU ready");
    Ok(RunningVm { vcpus, devices, counters, shared, kvm })
}

/// Finds what of a boot can be wrong with what runs, on as many `cpus`, and with its memory, as long as nothing of it is there. The
/// guest's physical addresses are of `width`.
pub fn check(payload: &Payload, cpus: CpuTopology, memory: &PlanInput, width: AddressWidth) -> Result<(), BootError> {
    let payload = Inspected::new(payload, cpus)?;
    let plan = MemoryPlan::new(memory, payload.kind(), width)?;
    payload.check_memory(&plan, None)
}

#[cfg(test)]
mod tests;
