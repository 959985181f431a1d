// SPDX-License-Identifier: Apache-2.0
//! The phases that every boot has, whatever the guest starts with: to the last device, to the vCPUs' threads, to the end.

use std::path::PathBuf;
use std::sync::Arc;

use kvm_ioctls::Kvm;
use vmm_sys_util::eventfd::EventFd;

use super::entry::Entry;
use super::machine::{self, Console, Machine};
use super::{BootError, Control};
use crate::acpi;
use crate::config::{MachineConfig, OutputFile, SerialConfig};
use crate::devices::running::{WorkerError, Workers};
use crate::devices::terminal;
use crate::devices::virtio::{BalloonControl, Resizer, VirtioWorker};
use crate::listener::Bound;
use crate::memory::fault;
use crate::memory::guest::{self, MapError};
use crate::memory::host::Host;
use crate::memory::prefault::{self, Prefaulting};
use crate::memory::{GpaRange, GuestMemory, HostBacking, MemoryPlan};
use crate::observe::counters::Counters;
use crate::sandbox::Kind;
use crate::timeline::Timeline;
use crate::vcpu::{self, Shared, Task, Threads, Waiting};
use crate::vm::{self, Start, Vm};

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

/// A VM that can run at once: all of it is there, and nothing that takes long is left to do.
#[derive(Debug)]
pub struct Prepared {
    start: Start,
    waiting: Waiting,
    leftover: Leftover,
    timeline: Arc<Timeline>,
}

/// What there is of a VM that runs.
#[derive(Debug)]
pub struct Booted {
    /// The vCPUs.
    pub vcpus: Threads,
    /// The devices' threads.
    pub workers: Workers,
    /// The disks that can get another size, by what they are called.
    pub disks: Vec<(String, Arc<Resizer>)>,
    /// Presses the power button.
    pub power_button: EventFd,
    /// What vCPUs and devices have done.
    pub counters: Arc<Counters>,
    /// For whoever wants to know, once KVM has failed, whether it works at all, and can open it no more.
    pub kvm: Kvm,
    /// The way from the terminal to the guest.
    pub console: Option<Console>,
    /// By which programs of the host reach the guest's; they go with this.
    pub sockets: Vec<Bound>,
    /// The pseudo terminal at its console.
    pub pty: Option<PathBuf>,
    /// By which the guest is asked for memory.
    pub balloon: Option<BalloonControl>,
}

/// What is left of the machine when the vCPUs have their share of it.
#[derive(Debug)]
struct Leftover {
    /// The devices' threads.
    workers: Workers,
    disks: Vec<(String, Arc<Resizer>)>,
    power_button: EventFd,
    input: machine::SerialInput,
    serial_output: Option<OutputFile>,
    sockets: Vec<Bound>,
    pty: Option<PathBuf>,
    balloon: Option<BalloonControl>,
    counters: Arc<Counters>,
    kvm: Kvm,
}

impl Assembled {
    /// From a plan to the last device. `kernel` is where the kernel goes, if flatboot loads it; without, firmware does.
    pub(super) fn new(
        mut config: MachineConfig,
        plan: MemoryPlan,
        kernel: Option<GpaRange>,
        timeline: &Arc<Timeline>,
    ) -> Result<Self, BootError> {
        let host = config.study.backing(&config.memory, &plan, kernel);
        let host = if kernel.is_some() { host } else { host.with_firmware(&plan) };
        Host::this().check(plan.slots(), &host, config.study.prefault(&config.memory))?;
        timeline.phase("memory planned");

        let kvm = vm::open_kvm()?;
        plan.check_width(vm::address_width(&kvm)?)?;
        timeline.phase("KVM opened");

        let memory = map(&plan, &host)?;
        // Before anybody touches it.
        fault::watch(&memory, terminal::restore).map_err(BootError::Signals)?;
        timeline.phase("memory mapped");

        let vm = Vm::create(&kvm, &memory, config.cpus.topology, &config.nodes, config.cpus.nested)?;
        timeline.phase("VM created");

        let machine = machine::build(&mut config, kernel.is_none(), &vm, &memory, timeline)?;
        timeline.phase("devices built");
        Ok(Self { config, plan, memory, kvm, vm, machine, host })
    }

    /// What the ACPI tables say.
    pub(super) fn acpi(&self) -> acpi::Machine<'_> {
        acpi_machine(&self.config, &self.plan, self.machine.virtio_devices)
    }

    /// Starts the vCPUs' threads, which back memory until the boot CPU may start, and what backs the rest beforehand.
    pub(super) fn start(self, control: &Control, timeline: &Arc<Timeline>) -> Result<Started, BootError> {
        let Self { config, plan, memory, kvm, vm, machine, host } = self;
        let Machine { ports, mmio, workers, mut running, counters, power_button, input, serial_output, .. } = machine;
        let (virtio_devices, disks) = (machine.virtio_devices, machine.disks);
        let (serial_writer, sockets) = (machine.serial_writer, machine.sockets);
        let (pty, balloon) = (machine.pty, machine.balloon);
        let counters = Arc::new(Counters::new(config.cpus.boot.get(), counters));
        let shared = Arc::new(Shared {
            vm,
            memory: memory.clone(),
            ports,
            mmio,
            ender: control.ender.clone(),
            counters: Arc::clone(&counters),
            jail: control.jail.clone(),
            timeline: Arc::clone(timeline),
        });
        let waiting = vcpu::start(&shared, tasks(&config, &plan, &host))?;
        timeline.phase("vCPU threads started");
        let prefaulting = prefault(&config, &plan, &memory, &host, timeline)?;
        start_workers(workers, &mut running, control)?;
        if let Some(writer) = serial_writer {
            let entry = Entry::new(control, Kind::SerialOutput, "serial output".to_owned());
            running.add(writer.start(|| entry.pass())?);
        }
        let workers = running;
        let leftover =
            Leftover { workers, disks, power_button, input, serial_output, sockets, pty, balloon, counters, kvm };
        Ok(Started { config, plan, memory, virtio_devices, prefaulting, waiting, leftover })
    }
}

impl Started {
    /// What the ACPI tables say.
    pub(super) fn acpi(&self) -> acpi::Machine<'_> {
        acpi_machine(&self.config, &self.plan, self.virtio_devices)
    }

    /// Waits for what the user wants to be backed beforehand: it may take long.
    pub(super) fn prepared(mut self, start: Start, timeline: &Arc<Timeline>) -> Result<Prepared, BootError> {
        self.prefaulting.finish()?;
        self.waiting.until_ready()?;
        let Self { waiting, leftover, .. } = self;
        Ok(Prepared { start, waiting, leftover, timeline: Arc::clone(timeline) })
    }
}

impl Prepared {
    /// Lets the boot CPU run, once every thread is in its jail.
    pub fn start(self, control: &Control) -> Result<Booted, BootError> {
        let Leftover { workers, disks, power_button, input, serial_output, sockets, pty, balloon, counters, kvm } =
            self.leftover;
        let reads = Entry::new(control, Kind::SerialInput, "serial input".to_owned());
        let console = input.start(&control.ender, || reads.pass())?;
        // Nothing but the guest can fail from here on: now what the file held may go.
        serial_output.map(OutputFile::commit).transpose()?;
        // The last one: every thread is in its jail before the guest's first instruction.
        control.entries.wait();
        if control.once {
            control.jail.enter(if sockets.is_empty() { Kind::Vmm } else { Kind::VmmWithSocket })?;
        }
        let vcpus = self.waiting.release(self.start)?;
        self.timeline.phase("every vCPU ready");
        Ok(Booted { vcpus, workers, disks, power_button, counters, kvm, console, sockets, pty, balloon })
    }
}

/// Starts the threads of the devices, beside those that are `running`.
fn start_workers(
    workers: Vec<(String, VirtioWorker)>,
    running: &mut Workers,
    control: &Control,
) -> Result<(), WorkerError> {
    workers.into_iter().try_for_each(|(name, worker)| {
        let entry = Entry::new(control, worker.kind(), name.clone());
        running.add(worker.start(name, || entry.pass())?);
        Ok(())
    })
}

fn acpi_machine<'a>(config: &'a MachineConfig, plan: &'a MemoryPlan, virtio_devices: usize) -> acpi::Machine<'a> {
    let serial = !matches!(config.serial, SerialConfig::Off);
    acpi::Machine { cpus: config.cpus.topology, virtio_devices, serial, nodes: &config.nodes, slots: plan.slots() }
}

/// Where each vCPU's thread runs, and what it backs there: memory of the guest's node that the vCPU is on. Threads that run anywhere
/// back any memory.
fn tasks(config: &MachineConfig, plan: &MemoryPlan, host: &HostBacking) -> Vec<Task> {
    let anywhere = config.cpus.affinity.is_empty();
    let node_of = |node: u32| if anywhere { 0 } else { node };
    let nodes: Vec<_> = (0..config.cpus.boot.get()).map(|index| node_of(config.nodes.of_cpu(index))).collect();
    let placed = |ranges: &[GpaRange]| -> Vec<_> {
        ranges.iter().map(|range| (*range, node_of(plan.node_of(range.start())))).collect()
    };
    vcpu::tasks(config.cpus.affinities(), &nodes, &placed(&host.early), &placed(&host.ahead))
}

/// Maps memory; huge pages are asked for before any page of it is there.
pub(super) fn map(plan: &MemoryPlan, host: &HostBacking) -> Result<GuestMemory, MapError> {
    let memory = guest::map(plan.slots())?;
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
    plan: &MemoryPlan,
    memory: &GuestMemory,
    host: &HostBacking,
    timeline: &Arc<Timeline>,
) -> Result<Prefaulting, BootError> {
    let timeline = Arc::clone(timeline);
    let done = move || timeline.phase("memory prefaulted");
    let pages = plan.slots().iter().map(|slot| slot.backing.pages).max().unwrap_or_default();
    let mode = config.study.prefault(&config.memory);
    Ok(prefault::start(memory, &host.prefault, pages, mode, done)?)
}
