// SPDX-License-Identifier: Apache-2.0
//! The boot story: from a valid configuration to a running guest, one named phase after another.

mod load;
mod machine;

use std::sync::Arc;

use crate::config::{Config, FileError, OutputFile, Prefault, Thp};
use crate::ending::{Ending, EndingSink};
use crate::events::{self, EventError};
use crate::kernel::{Image, KernelError};
use crate::layout;
use crate::memory::guest::{self, Backing, MapError};
use crate::memory::{AddressWidth, GpaRange, GuestMemory, MemoryPlan, PlanError, SECTION_MEMMAP};
use crate::probe::{self, Depth, ProbeError};
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
    Map(#[from] MapError),
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
/// threads start before the kernel is loaded, so that they back memory meanwhile; the boot CPU goes last.
pub fn run(mut config: Config, timeline: &Arc<Timeline>) -> Result<Ending, BootError> {
    let mut image = Image::inspect(config.kernel.path(), config.kernel.file())?;
    timeline.phase("kernel image checked");

    let (plan, initramfs) = plan(&config, &image)?;
    timeline.phase("memory planned");

    let kvm = vm::open_kvm()?;
    let probing = probe::start(Depth::Quick)?;
    plan.check_width(vm::address_width(&kvm)?)?;
    timeline.phase("KVM opened");

    let memory = map(&config, &plan, &image)?;
    timeline.phase("memory mapped");

    let vm = Vm::create(&kvm, &memory, config.cpus.get())?;
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
    let early = first_touched(&config, &plan, &image);
    let mut waiting = vcpu::start(&shared, vcpu::shares(&early, config.cpus.get()))?;
    timeline.phase("vCPU threads started");

    image.load(&memory)?;
    load::initramfs(&memory, config.initramfs.as_ref(), initramfs)?;
    timeline.phase("kernel and initramfs loaded");

    let virtio_devices = machine.subscribers.len();
    let tables = load::Tables { config: &config, plan: &plan, image: &image, initramfs, virtio_devices };
    load::tables(&memory, &tables)?;
    timeline.phase("boot tables written");

    probing.finish()?;
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

/// Maps memory; huge pages are asked for where they pay: behind the kernel and the arenas.
fn map(config: &Config, plan: &MemoryPlan, image: &Image) -> Result<GuestMemory, MapError> {
    let backing = Backing { hugetlb: config.memory.hugepages, shared: config.memory.shared };
    let memory = guest::map(plan.slots(), backing)?;
    let huge: Vec<_> = match config.memory.thp {
        Thp::Off => Vec::new(),
        _ if config.memory.hugepages => Vec::new(),
        Thp::Early => std::iter::once(image.footprint()).chain(arenas(plan)).collect(),
        Thp::All => plan.slots().to_vec(),
    };
    for range in huge {
        if let Err(error) = guest::advise_huge(&memory, range) {
            tracing::warn!(%range, %error, "no transparent huge pages");
        }
    }
    Ok(memory)
}

/// What the guest touches first, to be backed by the vCPU threads: the kernel, and of each arena the part that
/// describes the sections which Linux fills before its allocator starts; or all of it, if the user asked.
fn first_touched(config: &Config, plan: &MemoryPlan, image: &Image) -> Vec<GpaRange> {
    let low_sections = layout::LOW_MEMORY_MAX / flatboot_handoff::SECTION_SIZE;
    let first = (low_sections + 1) * SECTION_MEMMAP;
    let whole = config.memory.prefault == Prefault::Arenas;
    let part = |arena: GpaRange| if whole { arena } else { GpaRange::of(arena.start(), first.min(arena.length())) };
    std::iter::once(image.footprint()).chain(arenas(plan).map(part)).collect()
}

fn arenas(plan: &MemoryPlan) -> impl Iterator<Item = GpaRange> + '_ {
    plan.arenas().iter().map(|arena| GpaRange::new(arena.base, arena.end()))
}
