// SPDX-License-Identifier: Apache-2.0
//! The phases that every boot has, whatever the guest starts with: to the last device, to the vCPUs' threads, to the end.

use std::sync::Arc;

use kvm_ioctls::Kvm;

use super::entry::Entry;
use super::machine::{self, Machine};
use super::{BootError, Control};
use crate::acpi;
use crate::config::{MachineConfig, OutputFile, SerialConfig};
use crate::devices::terminal;
use crate::devices::virtio::{Running, VirtioWorker, WorkerError};
use crate::ending::Ending;
use crate::memory::fault;
use crate::memory::guest::{self, Backing, MapError};
use crate::memory::host::Host;
use crate::memory::prefault::{self, Prefaulting};
use crate::memory::{GpaRange, GuestMemory, HostBacking, MemoryPlan};
use crate::observe::counters::Counters;
use crate::sandbox::Kind;
use crate::signals;
use crate::timeline::Timeline;
use crate::vcpu::{self, Shared, Waiting};
use crate::vm::{self, Start, Vm};
use crate::vmm::Vmm;

/// A VM with all its devices, before its first vCPU.
pub(super) struct Assembled {
    pub(super) config: MachineConfig,
    pub(super) plan: MemoryPlan,
    pub(super) memory: GuestMemory,
    pub(super) kvm: Kvm,
    pub(super) vm: Vm,
    pub(super) machine: Machine,
    host: HostBacking,
}

/// The same with vCPU threads, all waiting for the boot CPU's start.
pub(super) struct Started {
    pub(super) config: MachineConfig,
    pub(super) plan: MemoryPlan,
    pub(super) memory: GuestMemory,
    pub(super) virtio_devices: usize,
    prefaulting: Prefaulting,
    waiting: Waiting,
    leftover: Leftover,
}

/// What is left of the machine when the vCPUs have their share of it.
struct Leftover {
    /// The devices' threads.
    workers: Vec<Running>,
    power_button: vmm_sys_util::eventfd::EventFd,
    input: machine::SerialInput,
    serial_output: Option<OutputFile>,
}

impl Assembled {
    /// From a plan to the last device. `kernel` is where the kernel goes, if flatboot loads it; without, firmware does.
    pub(super) fn new(
        mut config: MachineConfig,
        plan: MemoryPlan,
        kernel: Option<GpaRange>,
        timeline: &Arc<Timeline>,
    ) -> Result<Self, BootError> {
        let host = config.memory.backing(&plan, kernel, config.cpus.early);
        let host = if kernel.is_some() { host } else { host.with_firmware(&plan) };
        let backing = Backing { pages: config.memory.pages, shared: config.memory.shared };
        Host::this().check(plan.slots(), backing, &host, config.memory.prefault)?;
        timeline.phase("memory planned");

        let kvm = vm::open_kvm()?;
        plan.check_width(vm::address_width(&kvm)?)?;
        timeline.phase("KVM opened");

        let memory = map(&plan, backing, &host)?;
        timeline.phase("memory mapped");

        let vm = Vm::create(&kvm, &memory, config.cpus.boot.get(), config.cpus.nested)?;
        timeline.phase("VM created");

        let machine = machine::build(&mut config, kernel.is_none(), &vm, &memory, timeline)?;
        timeline.phase("devices built");
        Ok(Self { config, plan, memory, kvm, vm, machine, host })
    }

    /// What the ACPI tables say.
    pub(super) fn acpi(&self) -> acpi::Machine<'_> {
        acpi_machine(&self.config, &self.plan, self.machine.workers.len())
    }

    /// Starts the vCPUs' threads, which back memory until the boot CPU may start, and what backs the rest beforehand.
    pub(super) fn start(self, control: &Control, timeline: &Arc<Timeline>) -> Result<Started, BootError> {
        let Self { config, plan, memory, kvm, vm, machine, host } = self;
        // Nobody has opened it before: a VM boots once.
        let _ = control.kvm.set(kvm);
        let Machine { ports, mmio, workers, disks, power_button, input, serial_output } = machine;
        let counters = Arc::new(Counters::new(config.cpus.boot.get(), disks));
        let _ = control.counters.set(Arc::clone(&counters));
        let shared = Arc::new(Shared {
            vm,
            memory: memory.clone(),
            ports,
            mmio,
            vmm: control.handle.clone(),
            counters,
            jail: control.jail.clone(),
            timeline: Arc::clone(timeline),
        });
        let waiting = vcpu::start(&shared, config.cpus.boot.get(), &host.early, &host.ahead)?;
        timeline.phase("vCPU threads started");
        let prefaulting = prefault(&config, &memory, &host, timeline)?;
        let workers = start_workers(workers, control)?;
        let virtio_devices = workers.len();
        let leftover = Leftover { workers, power_button, input, serial_output };
        Ok(Started { config, plan, memory, virtio_devices, prefaulting, waiting, leftover })
    }
}

impl Started {
    /// What the ACPI tables say.
    pub(super) fn acpi(&self) -> acpi::Machine<'_> {
        acpi_machine(&self.config, &self.plan, self.virtio_devices)
    }

    /// Lets the boot CPU start, and waits until the VM has ended.
    pub(super) fn run(mut self, start: Start, control: Control, timeline: &Timeline) -> Result<Ending, BootError> {
        let Leftover { workers, power_button, input, serial_output } = self.leftover;
        // While signals end this process and the terminal is not raw yet: it may take long, and nobody asks a guest that is not
        // there to power off.
        self.prefaulting.finish()?;
        let timeout = self.config.shutdown_timeout;
        let entry = |kind, name: &str| Entry::new(&control, kind, name.to_owned());
        let listens = entry(Kind::Signals, "signals");
        let Control { handle, stop, .. } = &control;
        let begin = || listens.pass();
        signals::listen(power_button, timeout, handle.clone(), stop.clone(), begin).map_err(BootError::Signals)?;
        let reads = entry(Kind::SerialInput, "serial input");
        let _raw = input.start(handle, || reads.pass())?;
        fault::watch(&self.memory, terminal::restore).map_err(BootError::Signals)?;
        self.waiting.until_ready()?;
        // Nothing but the guest can fail from here on: now what the file held may go.
        serial_output.map(OutputFile::commit).transpose()?;
        // The last one: every thread is in its jail before the guest's first instruction.
        control.entries.wait();
        control.jail.enter(Kind::Vmm)?;
        let vcpus = self.waiting.release(start)?;
        timeline.phase("every vCPU ready");

        // The threads have handles of their own: when all have gone, nobody is left to end the VM.
        drop(control.handle);
        Ok(Vmm::new(vcpus, workers, control.requests).serve())
    }
}

/// Starts a thread for each device.
fn start_workers(workers: Vec<VirtioWorker>, control: &Control) -> Result<Vec<Running>, WorkerError> {
    let start = |(slot, worker): (usize, VirtioWorker)| {
        let name = format!("virtio{slot}");
        let entry = Entry::new(control, Kind::Device, name.clone());
        worker.start(name, || entry.pass())
    };
    workers.into_iter().enumerate().map(start).collect()
}

fn acpi_machine<'a>(config: &MachineConfig, plan: &'a MemoryPlan, virtio_devices: usize) -> acpi::Machine<'a> {
    let serial = !matches!(config.serial, SerialConfig::Off);
    acpi::Machine { vcpus: config.cpus.boot.get(), virtio_devices, serial, ram: plan.slots() }
}

/// Maps memory; huge pages are asked for before any page of it is there.
pub(super) fn map(plan: &MemoryPlan, backing: Backing, host: &HostBacking) -> Result<GuestMemory, MapError> {
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
    config: &MachineConfig,
    memory: &GuestMemory,
    host: &HostBacking,
    timeline: &Arc<Timeline>,
) -> Result<Prefaulting, BootError> {
    let timeline = Arc::clone(timeline);
    let done = move || timeline.phase("memory prefaulted");
    Ok(prefault::start(memory, &host.prefault, config.memory.pages, config.memory.prefault, done)?)
}
