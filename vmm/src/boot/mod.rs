// SPDX-License-Identifier: Apache-2.0
//! The boot story: from a valid configuration to a running guest, one named phase after another.

mod load;
mod machine;

use std::sync::Arc;

use crate::config::{Config, FileError, OutputFile};
use crate::ending::{Ending, EndingSink};
use crate::events::{self, EventError};
use crate::kernel::{Image, KernelError};
use crate::memory::guest::{self, Backing, MapError};
use crate::memory::host::{Host, HostError};
use crate::memory::prefault::{self, PrefaultError, Prefaulting};
use crate::memory::{AddressWidth, GpaRange, GuestMemory, HostBacking, MemoryPlan, PlanError};
use crate::probe::{self, Depth, ProbeError, Probing};
use crate::signals;
use crate::timeline::Timeline;
use crate::vcpu::{self, Shared, VcpuError};
use crate::vm::{self, Vm, VmError};

/// Why a VM did not start. Each source names the thing, the value and what would be right.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant passes on the error of the module that it is named after")]
pub enum BootError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Prefault(#[from] PrefaultError),
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    #[error(transparent)]
    Load(#[from] load::LoadError),
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    #[error(transparent)]
    Events(#[from] EventError),
    #[error(transparent)]
    Output(#[from] FileError),
    #[error("signals cannot be handled")]
    Signals(#[source] std::io::Error),
}

/// Boots the VM that `config` describes and serves it until it ends.
///
/// The order is part of the product: whatever can fail on the user's input comes before anything is created; vCPU
/// threads start before the kernel is loaded, so that they back memory meanwhile; the boot CPU goes last. What the user wants
/// backed beforehand is backed meanwhile, too, by threads of its own: before the guest runs, or not at all.
pub fn run(mut config: Config, timeline: &Arc<Timeline>) -> Result<Ending, BootError> {
    let mut image = Image::inspect(config.kernel.path(), config.kernel.file())?;
    timeline.phase("kernel image checked");

    let (plan, initramfs) = plan(&config, &image)?;
    let host = config.memory.backing(&plan, Some(image.footprint()), config.cpus.early);
    let backing = Backing { pages: config.memory.pages, shared: config.memory.shared };
    Host::this().check(plan.slots(), backing, &host, config.memory.prefault)?;
    timeline.phase("memory planned");

    let kvm = vm::open_kvm()?;
    let mut probing = probe::start(Depth::Quick)?;
    plan.check_width(vm::address_width(&kvm)?)?;
    timeline.phase("KVM opened");

    let memory = map(&plan, backing, &host)?;
    timeline.phase("memory mapped");

    let vm = Vm::create(&kvm, &memory, config.cpus.boot.get())?;
    timeline.phase("VM created");

    let sink = EndingSink::new().map_err(BootError::Signals)?;
    let machine = machine::build(&mut config, &vm, &memory, timeline)?;
    timeline.phase("devices built");

    let shared = Arc::new(Shared {
        vm,
        memory: memory.clone(),
        ports: machine.ports,
        mmio: machine.mmio,
        sink: sink.clone(),
        timeline: Arc::clone(timeline),
    });
    let mut waiting = vcpu::start(&shared, config.cpus.boot.get(), &host.early, &host.ahead)?;
    timeline.phase("vCPU threads started");
    let prefaulting = prefault(&config, &memory, &host, timeline, &mut probing)?;

    image.load(&memory)?;
    load::initramfs(&memory, config.initramfs.as_ref(), initramfs)?;
    timeline.phase("kernel and initramfs loaded");

    let virtio_devices = machine.subscribers.len();
    let tables = load::Tables { config: &config, plan: &plan, image: &image, initramfs, virtio_devices };
    load::tables(&memory, &tables)?;
    timeline.phase("boot tables written");

    probing.finish()?;
    // While signals end this process and the terminal is not raw yet: it may take long, and nobody asks a guest that is not there
    // to power off.
    prefaulting.finish()?;
    signals::listen(machine.power_button, config.shutdown_timeout, sink.clone()).map_err(BootError::Signals)?;
    let _raw = machine.input.start()?;
    waiting.until_ready()?;
    // Nothing but the guest can fail from here on: now what the file held may go.
    machine.serial_output.map(OutputFile::commit).transpose()?;
    waiting.release(image.entry())?;
    timeline.phase("every vCPU ready");

    Ok(events::run_until_end(machine.subscribers, &sink)?)
}

/// Plans memory and finds the place of the initramfs in it, for the widest addresses: nothing but the largest size depends
/// on how wide this host's are.
fn plan(config: &Config, image: &Image) -> Result<(MemoryPlan, Option<GpaRange>), BootError> {
    let mut plan = MemoryPlan::new(&config.memory.plan_input(AddressWidth::reported(AddressWidth::MAX)))?;
    plan.check_kernel(image.footprint())?;
    let Some(file) = &config.initramfs else {
        return Ok((plan, None));
    };
    let range = plan.place_initramfs(file.length(), image.footprint().end())?;
    plan.mark_written(range);
    Ok((plan, Some(range)))
}

/// Maps memory; huge pages are asked for before any page of it is there.
fn map(plan: &MemoryPlan, backing: Backing, host: &HostBacking) -> Result<GuestMemory, MapError> {
    let memory = guest::map(plan.slots(), backing)?;
    for &range in &host.thp {
        if let Err(error) = guest::advise_huge(&memory, range) {
            // As on a host that has none: it costs speed, nothing else.
            tracing::info!(%range, %error, "no transparent huge pages");
        }
    }
    Ok(memory)
}

/// Begins to back what must be there before the guest runs.
fn prefault(
    config: &Config,
    memory: &GuestMemory,
    host: &HostBacking,
    timeline: &Arc<Timeline>,
    probing: &mut Probing,
) -> Result<Prefaulting, BootError> {
    if !host.prefault.is_empty() {
        // Its threads would leave the probe too little of the processors to be in time.
        probing.finish()?;
    }
    let timeline = Arc::clone(timeline);
    let done = move || timeline.phase("memory prefaulted");
    Ok(prefault::start(memory, &host.prefault, config.memory.pages, config.memory.prefault, done)?)
}

#[cfg(test)]
mod tests;
