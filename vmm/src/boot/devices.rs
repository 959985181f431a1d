// SPDX-License-Identifier: Apache-2.0
//! The devices of the VM, on their buses and with their interrupt lines.

use std::mem;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EventFd};

use super::entry::{Context, Entry};
use super::error::BootError;
use super::held::insert_held;
use super::serial::{Serial, serial};
use super::typed::{TerminalInput, Typed};
use super::virtio::Virtio;
use super::wiring::{DevicesError, host, line, shared};
use crate::bits::low32;
use crate::config::{MachineConfig, OutputFile};
use crate::devices::Bus;
use crate::devices::bus::BusError;
use crate::devices::fw_cfg::FwCfg;
use crate::devices::held::{HeldControl, Provider};
use crate::devices::i8042::I8042;
use crate::devices::ioapic::IoApic;
use crate::devices::mark::MarkPort;
use crate::devices::power::{self, ResetRegister, SleepRegisters};
use crate::devices::pvpanic::PvPanic;
use crate::devices::running::{WorkerError, Workers};
use crate::devices::virtio::block::Written;
use crate::devices::virtio::{BalloonControl, Resizer, VirtioDevice, VirtioMmio, VirtioWorker, mmio};
use crate::layout;
use crate::listener::Bound;
use crate::memory::{GuestMemory, PayloadKind};
use crate::observe::counters::Named;
use crate::observe::devices::{DeviceCounters, SerialCounters};
use crate::sandbox::Kind;
use crate::timeline::Timeline;
use crate::vm::Vm;

/// The devices of a VM whose vCPUs do not run yet.
pub(super) struct Devices {
    pub(super) buses: Buses,
    /// How many are virtio devices.
    pub(super) virtio: usize,
    /// What each is called, and counts by.
    pub(super) counters: Vec<Named>,
    pub(super) backends: Backends,
}

/// Where vCPUs find the devices.
pub(super) struct Buses {
    pub(super) ports: Bus,
    pub(super) mmio: Bus,
}

/// What does the devices' work on the side of the host.
pub(super) struct Backends {
    /// What serves the virtio devices' queues once it is started, and what its thread is to be called.
    workers: Vec<(String, VirtioWorker)>,
    /// What gives the guest held memory once it is started.
    provider: Option<Box<dyn Provider>>,
    serial: Serial,
    /// Where the terminal leads.
    typed: Typed,
    /// What the virtio console writes to, if that is a file, to be committed before the guest runs.
    console: Option<OutputFile>,
    handles: Handles,
}

/// By which the owner of a VM reaches its devices while it runs. They go with this: their threads end or are left behind, the
/// terminal is what it was, the sockets are gone.
#[derive(Debug)]
pub struct Handles {
    /// Their threads.
    pub workers: Workers,
    /// The terminal's way to the guest, once it is open.
    pub terminal: Option<TerminalInput>,
    /// By which programs of the host reach a vsock device and a console.
    pub sockets: Vec<Bound>,
    /// The disks that can get another size, by what they are called.
    pub disks: Vec<(String, Arc<Resizer>)>,
    /// The files of the disks that the guest may write to, by their paths.
    pub written: Arc<[Written]>,
    /// Presses the power button.
    pub power_button: EventFd,
    /// Says that the VM generation ID is another one.
    pub generation: EventFd,
    /// The pseudo terminal at the virtio console.
    pub pty: Option<PathBuf>,
    /// By which the guest is asked for memory.
    pub balloon: Option<BalloonControl>,
    /// By which it is asked to own more or less of its held memory.
    pub held: Option<Arc<HeldControl>>,
}

impl Devices {
    /// Builds them and connects them to `vm`. Firmware has its own way to the power registers, and its marks can end the VM.
    pub(super) fn build(
        config: &mut MachineConfig,
        payload: PayloadKind,
        vm: &Vm,
        memory: &GuestMemory,
        timeline: &Arc<Timeline>,
    ) -> Result<Self, DevicesError> {
        let firmware = payload == PayloadKind::Firmware;
        let mut ports = legacy_ports()?;
        let marks = Arc::clone(timeline);
        ports.insert(layout::PORT_MARK, shared(MarkPort::new(firmware, Box::new(move |code| marks.guest(code)))))?;
        let of_serial = Arc::<SerialCounters>::default();
        let mut serial = serial(config, vm, &mut ports, Arc::clone(&of_serial))?;

        let mut mmio = Bus::new();
        if let Some(router) = vm.router() {
            mmio.insert(layout::IOAPIC, shared(IoApic::new(router)))?;
        }
        if firmware {
            firmware_power(&mut mmio)?;
        }
        let Virtio { devices, mut counters, disks: names, written, sockets, pty, console, typed, balloon } =
            Virtio::build(config, memory)?;
        // One of the two has it.
        let typed = typed.map_or_else(|| mem::take(&mut serial.typed), Typed::Console);
        let (mut workers, mut disks) = (Vec::new(), Vec::new());
        counters.push(("_serial".to_owned(), of_serial));
        let virtio_devices = devices.len();
        for (slot, device) in devices.into_iter().enumerate() {
            let lanes = insert_virtio(slot as u64, device, vm, memory, &mut mmio)?;
            let resizer = lanes.first().map(VirtioWorker::resizer);
            disks.extend(names.get(slot).cloned().zip(resizer));
            let name = |lane| if lane == 0 { format!("virtio{slot}") } else { format!("virtio{slot}.{lane}") };
            workers.extend(lanes.into_iter().enumerate().map(|(lane, worker)| (name(lane), worker)));
        }

        let (held, provider) = insert_held(vm, memory, config.memory.thp, &mut mmio)?.unzip();
        counters.extend(held.iter().map(|held| ("_memory".to_owned(), Arc::clone(held) as Arc<dyn DeviceCounters>)));
        let (power_button, generation) = (line(vm, layout::GSI_POWER_BUTTON)?, line(vm, layout::GSI_GENERATION)?);
        let handles = Handles {
            workers: Workers::default(),
            terminal: None,
            sockets,
            disks,
            written: written.into(),
            power_button,
            generation,
            pty,
            balloon,
            held,
        };
        let backends = Backends { workers, provider, serial, typed, console, handles };
        Ok(Self { buses: Buses { ports, mmio }, virtio: virtio_devices, counters, backends })
    }

    /// None of their threads works before it is told to go on.
    pub(super) fn rest_first(&self) {
        self.backends.workers.iter().for_each(|(_, worker)| worker.rest_first());
        self.backends.handles.held.iter().for_each(|held| held.rest_first());
        self.backends.typed.rest_first();
    }

    /// Adds what firmware asks about the machine, and starts its thread.
    pub(super) fn insert_fw_cfg(&mut self, mut fw_cfg: FwCfg, context: &Context) -> Result<(), BootError> {
        let entry = Entry::new(context, Kind::FwCfg, "fw_cfg".to_owned());
        if let Some(thread) = fw_cfg.start(|| entry.pass())? {
            self.backends.handles.workers.add(thread);
        }
        let inserted = self.buses.ports.insert_stream(layout::PORT_FW_CFG, shared(fw_cfg));
        Ok(inserted.map_err(DevicesError::Bus)?)
    }
}

impl Backends {
    /// Starts the threads of the devices.
    pub(super) fn start(mut self, context: &Context) -> Result<Self, WorkerError> {
        let running = &mut self.handles.workers;
        for (name, worker) in self.workers.drain(..) {
            let entry = Entry::new(context, worker.kind(), name.clone());
            running.add(worker.start(name, || entry.pass())?);
        }
        if let (Some(held), Some(provider)) = (&self.handles.held, self.provider.take()) {
            let entry = Entry::new(context, Kind::Memory, "memory".to_owned());
            running.add(held.serve("memory".to_owned(), provider, || entry.pass())?);
        }
        if let Some(writer) = self.serial.writer.take() {
            let entry = Entry::new(context, Kind::SerialOutput, "serial output".to_owned());
            running.add(writer.start(|| entry.pass())?);
        }
        Ok(self)
    }

    /// Opens the terminal, and empties the files that the serial port and the console write to: nothing but the guest can fail from
    /// here on.
    pub(super) fn open(self, context: &Context) -> Result<Handles, DevicesError> {
        let Self { serial: Serial { file, .. }, typed, console, handles, .. } = self;
        let entry = Entry::new(context, Kind::SerialInput, "serial input".to_owned());
        let terminal = typed.start(&context.ender, || entry.pass())?;
        file.into_iter().chain(console).try_for_each(|file| file.commit().map(drop))?;
        Ok(Handles { terminal, ..handles })
    }
}

/// Those at I/O ports that have nothing to do with anything else.
fn legacy_ports() -> Result<Bus, BusError> {
    let mut ports = Bus::new();
    ports.insert(layout::PORT_I8042, shared(I8042))?;
    ports.insert(layout::PORT_PVPANIC, shared(PvPanic))?;
    ports.insert(layout::PORT_SLEEP, shared(SleepRegisters::default()))?;
    ports.insert(layout::PORT_RESET, shared(ResetRegister(power::RESET_VALUE)))?;
    Ok(ports)
}

/// The power registers once more, where firmware for QEMU's microvm finds them: it and its runtime services power off and
/// reset there.
fn firmware_power(mmio: &mut Bus) -> Result<(), BusError> {
    let Range { start, end } = layout::FIRMWARE_POWER;
    let reset = end - 1;
    mmio.insert(start..reset, shared(SleepRegisters::default()))?;
    mmio.insert(reset..end, shared(ResetRegister(power::FIRMWARE_RESET_VALUE)))
}

/// Puts `device` at virtio-mmio slot `slot`; returns what serves its queues.
fn insert_virtio(
    slot: u64,
    device: Box<dyn VirtioDevice>,
    vm: &Vm,
    memory: &GuestMemory,
    bus: &mut Bus,
) -> Result<Vec<VirtioWorker>, DevicesError> {
    let start = layout::VIRTIO_MMIO.start + slot * layout::VIRTIO_MMIO_STRIDE;
    let range = Range { start, end: start + layout::VIRTIO_MMIO_STRIDE };
    let irq = line(vm, layout::GSI_VIRTIO.start + low32(slot))?;
    let (transport, workers) = VirtioMmio::new(device, memory, irq).map_err(host("virtio device"))?;
    for (queue, notify) in (0u32..).zip(transport.notify_fds()) {
        vm.connect_doorbell(notify, start + mmio::QUEUE_NOTIFY, queue)?;
    }
    if transport.ignores_acknowledgements() {
        // KVM has it for itself from here on, and nobody hears it: the vCPU does not leave the kernel for nothing.
        let unheard = EventFd::new(EFD_CLOEXEC).map_err(host("virtio device"))?;
        vm.connect_doorbell(&unheard, start + mmio::INTERRUPT_ACK, mmio::LOOKED_AT_QUEUES)?;
    }
    bus.insert(range, shared(transport))?;
    Ok(workers)
}
