// SPDX-License-Identifier: Apache-2.0
//! The other story: from a state to a VM that rests where it was saved.

use std::fs::File;
use std::io;
use std::sync::Arc;

use flatboot_handoff::SECTION_SIZE;

use super::backing;
use super::devices::Devices;
use super::entry::Context;
use super::error::{BootError, RestoreError};
use super::payload::Inspected;
use super::platform::Platform;
use super::running::RunningVm;
use super::vcpus;
use crate::config::{Config, VmConfig};
use crate::devices::terminal;
use crate::memory::prefault::Prefaulting;
use crate::memory::{MemoryPlan, fault, guest};
use crate::observe::counters::Counters;
use crate::state::Whole;
use crate::state::image;
use crate::vcpu::Saved;
use crate::vm::saved::age;
use crate::vm::{self, Start, Vm};

/// What a VM goes on from.
#[derive(Debug)]
pub struct Origin {
    /// All but the content of its memory,
    pub state: Whole<VmConfig>,
    /// which is here.
    pub image: File,
    /// Whether that is to be in the host's memory before the guest runs.
    pub prefault: bool,
}

/// Makes the VM that `config` describes what was saved in `origin`, until only its vCPUs and devices have to be told to go on. `ready`
/// is called when nothing takes long any more.
///
/// The order is KVM's, and that of things that depend on each other: vCPUs have their state before interrupt controllers send them
/// anything, those are there before devices interrupt, and the guest hears last that it is another VM now. Nothing works meanwhile.
pub fn restore(
    config: Config,
    origin: Origin,
    context: &Context,
    ready: impl FnOnce(&Context) -> io::Result<()>,
) -> Result<RunningVm, BootError> {
    let Config { machine: mut config, payload, .. } = config;
    let Origin { state, image, prefault } = origin;
    let Whole { id, memory: pieces, mut machine, devices: states, .. } = state;
    let timeline = &context.timeline;
    let payload = Inspected::new(&payload, config.cpus.topology)?;

    let (kvm, width) = vm::open_and_measure()?;
    timeline.phase("KVM opened");
    let plan = MemoryPlan::new(&config.memory, payload.kind(), width)?;
    let there = check(&plan, &pieces)?;
    if machine.vcpus.len() != usize::from(config.cpus.boot.get()) {
        return Err(RestoreError::Inconsistent { what: "its number of vCPUs" }.into());
    }
    let length = pieces.iter().map(|(_, length)| length).sum();
    image::check(&image, length, id).map_err(RestoreError::Image)?;
    timeline.phase(payload.phase());

    let memory = guest::map_file(plan.slots(), plan.held().map(|held| (held, there)), &Arc::new(image))?;
    // Before anybody touches it.
    fault::watch(&memory, terminal::restore).map_err(BootError::Signals)?;
    timeline.phase("memory mapped");
    let cpus = &config.cpus;
    let vm = Vm::create(&kvm, &memory, cpus.topology, &config.nodes, cpus.nested, Some(&machine))?;
    timeline.phase("VM created");
    let disks: Vec<_> = config.disks.iter().map(|disk| disk.path().display().to_string()).collect();
    let devices = Devices::build(&mut config, payload.kind(), &vm, &memory, timeline)?;
    let buses = [(&devices.buses.ports, &states.ports), (&devices.buses.mmio, &states.mmio)];
    let restored = buses.into_iter().try_for_each(|(bus, states)| bus.restore(states));
    restored.map_err(|error| RestoreError::of_device(error, &disks))?;
    devices.rest_first();
    timeline.phase("devices restored");

    let counters = Arc::new(Counters::new(config.cpus.boot.get(), devices.counters));
    let platform = Platform { config: &config, plan: &plan, memory: &memory, virtio_devices: devices.virtio };
    let saved = Saved { vcpus: std::mem::take(&mut machine.vcpus), taken_at: machine.taken_at };
    let (shared, mut vcpus) = vcpus::start(vm, devices.buses, &counters, platform, context, Some(saved))?;
    let prefaulting = if prefault { Some(backing::prefault_image(&memory, timeline)?) } else { None };
    let backends = devices.backends.start(context)?;
    prefaulting.map_or(Ok(()), Prefaulting::finish)?;
    vcpus.until_ready()?;
    // Not as of when the vCPUs got their counters: prefaulting takes seconds.
    shared.vm.restore(&machine, age(machine.taken_at))?;
    timeline.phase("vCPUs restored");

    ready(context).map_err(BootError::Signals)?;
    let devices = backends.open(context)?;
    context.close(&devices.sockets)?;
    let vcpus = vcpus.release(Start::Saved)?;
    shared.ports.awake();
    shared.mmio.awake();
    // The number in its memory is another one by now.
    devices.generation.write(1).map_err(BootError::Signals)?;
    timeline.phase("VM restored");
    Ok(RunningVm { vcpus, devices, counters, shared, kvm })
}

/// Whether memory is made of the same pieces. Bytes of held memory that were there are returned: they are the last piece, if there were
/// any.
fn check(plan: &MemoryPlan, pieces: &[(u64, u64)]) -> Result<u64, RestoreError> {
    let slots = plan.slots().iter().map(|slot| (slot.range.start(), slot.range.length()));
    let there = match (plan.held(), pieces.get(plan.slots().len())) {
        (Some(held), Some(&(start, length))) if start == held.start() && length <= held.length() => length,
        _ => 0,
    };
    let held = plan.held().filter(|_| there > 0).map(|held| (held.start(), there));
    let same = slots.chain(held).eq(pieces.iter().copied()) && there.is_multiple_of(SECTION_SIZE);
    if same { Ok(there) } else { Err(RestoreError::Inconsistent { what: "its memory" }) }
}
