// SPDX-License-Identifier: Apache-2.0
//! The devices of the VM, on their buses and with their interrupt lines.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EventFd};

use crate::bits::low32;
use crate::config::{ConsoleConfig, DISK_PATH, FileError, MachineConfig, NetEnd, OutputFile, RateConfig, SerialConfig};
use crate::devices::bus::{BusDevice, BusError};
use crate::devices::capped::Capped;
use crate::devices::escape::{self, Escape};
use crate::devices::fw_cfg::FwCfg;
use crate::devices::i8042::I8042;
use crate::devices::input::{End, Input};
use crate::devices::ioapic::IoApic;
use crate::devices::mark::MarkPort;
use crate::devices::power::{self, ResetRegister, SleepRegisters};
use crate::devices::pvpanic::PvPanic;
use crate::devices::queued::{self, QueueWriter};
use crate::devices::running::{Running, Workers};
use crate::devices::serial::{Feeding, SerialPort};
use crate::devices::virtio::block::Settings;
use crate::devices::virtio::console::{self, Terminal, socket::Socket};
use crate::devices::virtio::limit::{BothWays, Limiter};
use crate::devices::virtio::net::Vhost;
use crate::devices::virtio::{
    Balloon, BalloonControl, Block, BlockError, Net, Resizer, Rng, VirtioDevice, VirtioMmio, VirtioWorker, Vsock, mmio,
};
use crate::devices::{Bus, terminal::RawTerminal};
use crate::ender::Ender;
use crate::ending::Ending;
use crate::layout;
use crate::listener::Bound;
use crate::memory::GuestMemory;
use crate::observe::counters::Named;
use crate::observe::devices::{DiskCounters, SerialCounters};
use crate::stdio;
use crate::timeline::Timeline;
use crate::vm::{Vm, VmError};

/// Why the devices could not be built.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Out of file descriptors or threads.
    #[error("devices: {what}")]
    Host {
        /// What was being made.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The layout puts two devices at one place.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// KVM refused an interrupt line or a doorbell.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The serial port's file cannot be used.
    #[error(transparent)]
    Output(#[from] FileError),
    /// A disk cannot be used.
    #[error("{}", DISK_PATH.at(*index).is(path))]
    Disk {
        /// How many others come before it.
        index: usize,
        /// The file.
        path: String,
        /// Why.
        source: BlockError,
    },
}

fn host(what: &'static str) -> impl Fn(io::Error) -> MachineError {
    move |source| MachineError::Host { what, source }
}

/// Everything that the vCPUs and the devices' own threads need.
pub(super) struct Machine {
    pub(super) ports: Bus,
    pub(super) mmio: Bus,
    pub(super) virtio_devices: usize,
    /// What serves the virtio devices' queues once it is started, and what its thread is to be called.
    pub(super) workers: Vec<(String, VirtioWorker)>,
    /// The disks that can get another size, by what they are called.
    pub(super) disks: Vec<(String, Arc<Resizer>)>,
    /// Other devices' threads, which run already.
    pub(super) running: Workers,
    /// What each device is called, and counts by.
    pub(super) counters: Vec<Named>,
    pub(super) power_button: EventFd,
    pub(super) input: SerialInput,
    /// The file that the serial port writes to, to be committed before the guest runs.
    pub(super) serial_output: Option<OutputFile>,
    /// What writes to it once it is started.
    pub(super) serial_writer: Option<QueueWriter<File>>,
    /// Those of a vsock device and of a console, which go when the VM does.
    pub(super) sockets: Vec<Bound>,
    /// The console's pseudo terminal.
    pub(super) pty: Option<PathBuf>,
    pub(super) balloon: Option<BalloonControl>,
}

/// The terminal's way to the serial port, not yet open.
#[derive(Debug)]
pub(super) struct SerialInput(Option<Arc<Mutex<SerialPort>>>);

/// The terminal's way to the serial port. Dropping it ends that, and makes the terminal what it was.
#[derive(Debug)]
pub struct Console {
    /// First: what is read after that is for somebody else.
    _end: End,
    _feeding: Feeding,
    _raw: Option<RawTerminal>,
}

impl SerialInput {
    /// From now on, what is typed goes to the guest, but for the keys that end the VM, as long as the result lives. `begin` is the
    /// first that the thread does which takes what is typed; it ends if there is nothing to keep.
    pub(super) fn start<G: 'static>(
        self,
        ender: &Ender,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Option<Console>, MachineError> {
        let Some(port) = self.0 else { return Ok(None) };
        let raw = RawTerminal::enter().map_err(host("the terminal cannot be made raw"))?;
        if raw.is_none() && io::stdin().is_terminal() {
            // Another process group has the terminal: reading from it would stop this process (SIGTTIN).
            return Ok(None);
        }
        let (stdin, end) = Input::new().map_err(host("serial input"))?;
        let input: Box<dyn Read + Send> = if raw.is_some() {
            stdio::tell(&format!("flatboot: {}", escape::HINT));
            let ender = ender.clone();
            let stop = move || ender.end(Ending::Stopped { why: "Ctrl-A x was typed".to_owned() });
            Box::new(Escape::new(stdin, Box::new(stop)))
        } else {
            Box::new(stdin)
        };
        let feeding = SerialPort::attach_input(&port, input, begin).map_err(host("serial input"))?;
        Ok(Some(Console { _end: end, _feeding: feeding, _raw: raw }))
    }
}

impl Machine {
    /// Adds what firmware asks about the machine.
    pub(super) fn insert_fw_cfg(&mut self, fw_cfg: FwCfg, thread: Option<Running>) -> Result<(), MachineError> {
        if let Some(thread) = thread {
            self.running.add(thread);
        }
        Ok(self.ports.insert_stream(layout::PORT_FW_CFG, shared(fw_cfg))?)
    }
}

/// Builds the devices and connects them to `vm`. `firmware` says whether the guest starts with firmware, which has its own way to
/// the power registers and whose marks can end the VM.
pub(super) fn build(
    config: &mut MachineConfig,
    firmware: bool,
    vm: &Vm,
    memory: &GuestMemory,
    timeline: &Arc<Timeline>,
) -> Result<Machine, MachineError> {
    let mut ports = Bus::new();
    ports.insert(layout::PORT_I8042, shared(I8042))?;
    ports.insert(layout::PORT_PVPANIC, shared(PvPanic))?;
    ports.insert(layout::PORT_SLEEP, shared(SleepRegisters::default()))?;
    ports.insert(layout::PORT_RESET, shared(ResetRegister(power::RESET_VALUE)))?;
    let marks = Arc::clone(timeline);
    ports.insert(layout::PORT_MARK, shared(MarkPort::new(firmware, Box::new(move |code| marks.guest(code)))))?;
    let of_serial = Arc::<SerialCounters>::default();
    let Serial { input, file: serial_output, writer: serial_writer } =
        serial(config, vm, &mut ports, Arc::clone(&of_serial))?;

    let mut mmio = Bus::new();
    if let Some(router) = vm.router() {
        mmio.insert(layout::IOAPIC, shared(IoApic::new(router)))?;
    }
    if firmware {
        firmware_power(&mut mmio)?;
    }
    let mut workers = Vec::new();
    let disks = config.disks.len();
    let Virtio { devices, mut counters, sockets, pty, balloon } = virtio_devices(config, memory)?;
    let names: Vec<_> = counters.iter().take(disks).map(|(id, _)| id.clone()).collect();
    let mut disks = Vec::new();
    counters.push(("_serial".to_owned(), of_serial));
    let virtio_devices = devices.len();
    for (slot, device) in devices.into_iter().enumerate() {
        let lanes = virtio(slot as u64, device, vm, memory, &mut mmio)?;
        let resizer = lanes.first().map(VirtioWorker::resizer);
        disks.extend(names.get(slot).cloned().zip(resizer));
        let name = |lane| if lane == 0 { format!("virtio{slot}") } else { format!("virtio{slot}.{lane}") };
        workers.extend(lanes.into_iter().enumerate().map(|(lane, worker)| (name(lane), worker)));
    }

    let power_button = line(vm, layout::GSI_POWER_BUTTON)?;
    let running = Workers::default();
    Ok(Machine {
        ports,
        mmio,
        virtio_devices,
        workers,
        disks,
        running,
        counters,
        power_button,
        input,
        serial_output,
        serial_writer,
        sockets,
        pty,
        balloon,
    })
}

/// The power registers once more, where firmware for QEMU's microvm finds them: it and its runtime services power off and
/// reset there.
fn firmware_power(mmio: &mut Bus) -> Result<(), BusError> {
    let Range { start, end } = layout::FIRMWARE_POWER;
    let reset = end - 1;
    mmio.insert(start..reset, shared(SleepRegisters::default()))?;
    mmio.insert(reset..end, shared(ResetRegister(power::FIRMWARE_RESET_VALUE)))
}

fn shared<T: BusDevice + 'static>(device: T) -> Arc<Mutex<T>> {
    Arc::new(Mutex::new(device))
}

/// An eventfd that raises interrupt line `gsi`.
fn line(vm: &Vm, gsi: u32) -> Result<EventFd, MachineError> {
    let irq = EventFd::new(EFD_CLOEXEC).map_err(host("interrupt line"))?;
    vm.connect_irq(&irq, gsi)?;
    Ok(irq)
}

/// What there is of a serial port beside its registers.
struct Serial {
    /// From the terminal, if it has any.
    input: SerialInput,
    /// Where it writes to, if that is a file.
    file: Option<OutputFile>,
    /// What does that.
    writer: Option<QueueWriter<File>>,
}

/// Puts the serial port on its bus.
fn serial(
    config: &mut MachineConfig,
    vm: &Vm,
    ports: &mut Bus,
    counters: Arc<SerialCounters>,
) -> Result<Serial, MachineError> {
    let takes_input = matches!(config.serial, SerialConfig::Tty);
    let mut serial = Serial { input: SerialInput(None), file: None, writer: None };
    if matches!(config.serial, SerialConfig::Off) {
        return Ok(serial);
    }
    let mut room = u64::MAX;
    // The port stays, whatever is left of its configuration.
    let output: Box<dyn Write + Send> = match std::mem::replace(&mut config.serial, SerialConfig::Null) {
        SerialConfig::Tty => Box::new(io::stdout()),
        SerialConfig::File(output) => {
            let file = output.writer()?;
            // What an earlier guest has left there counts.
            let there = if output.appends() { file.metadata().map_or(0, |file| file.len()) } else { 0 };
            room = config.serial_limit.map_or(u64::MAX, |limit| limit.saturating_sub(there));
            let (queued, writer) = queued::queue(file, Arc::clone(&counters)).map_err(host("serial output"))?;
            (serial.file, serial.writer) = (Some(output), Some(writer));
            Box::new(queued)
        }
        SerialConfig::Null | SerialConfig::Off => Box::new(io::sink()),
    };
    let irq = line(vm, layout::GSI_SERIAL)?;
    let output = Box::new(Capped::new(output, room, counters));
    let port = Arc::new(Mutex::new(SerialPort::new(irq, output).map_err(host("serial port"))?));
    ports.insert(layout::PORT_SERIAL, port.clone())?;
    serial.input = SerialInput(takes_input.then_some(port));
    Ok(serial)
}

/// The virtio devices.
#[derive(Default)]
struct Virtio {
    devices: Vec<Box<dyn VirtioDevice>>,
    /// What each is called and counts by.
    counters: Vec<Named>,
    /// What some of them are reached by.
    sockets: Vec<Bound>,
    pty: Option<PathBuf>,
    balloon: Option<BalloonControl>,
}

fn limiter(limits: Option<RateConfig>) -> Limiter {
    limits.map_or_else(Limiter::default, |limits| limits.limiter())
}

/// The same limits for each direction.
fn both_ways(limits: Option<RateConfig>) -> BothWays {
    BothWays { received: limiter(limits), sent: limiter(limits) }
}

/// The virtio devices in slot order: disks first, then network interfaces, so that their names do not depend on what else there
/// is; then what there is one of.
fn virtio_devices(config: &mut MachineConfig, memory: &GuestMemory) -> Result<Virtio, MachineError> {
    let Virtio { mut devices, mut counters, mut sockets, mut pty, mut balloon } = Virtio::default();
    for (index, disk) in config.disks.drain(..).enumerate() {
        let path = disk.path().display().to_string();
        let id = disk.id().map_or_else(|| format!("_disk{index}"), str::to_owned);
        let of_disk = Arc::<DiskCounters>::default();
        let mut settings = Settings {
            readonly: disk.readonly(),
            direct: disk.direct(),
            sparse: disk.sparse(),
            serial: disk.serial().map_or_else(|| format!("flatboot-disk{index}"), str::to_owned),
            name: path.clone(),
            queue_size: disk.queue_size(),
            num_queues: disk.num_queues(),
            io_uring: disk.io_uring(),
            lock: None,
            limiter: limiter(disk.limits()),
            counters: Arc::clone(&of_disk),
        };
        let (file, locked) = disk.into_files();
        settings.lock = Some(locked);
        let block = Block::new(file, settings).map_err(|source| MachineError::Disk { index, path, source })?;
        devices.push(Box::new(block));
        counters.push((id, of_disk));
    }
    for (index, net) in config.nets.drain(..).enumerate() {
        let id = net.id.clone().unwrap_or_else(|| format!("_net{index}"));
        match net.end {
            NetEnd::Thread(link) => {
                let device = Net::new(link, net.name, net.interface, both_ways(net.limits));
                counters.push((id, device.counters()));
                devices.push(Box::new(device));
            }
            // The tap itself counts what the kernel does.
            NetEnd::Kernel(tap) => {
                devices.push(Box::new(Vhost::new(tap, net.interface, memory).map_err(host("vhost-net"))?));
            }
        }
    }
    if let Some(vsock) = config.vsock.take() {
        let (bound, listener) = vsock.listener;
        let device =
            Vsock::new(vsock.cid, listener, vsock.path, both_ways(vsock.limits)).map_err(host("vsock device"))?;
        sockets.push(bound);
        counters.push((vsock.id.unwrap_or_else(|| "_vsock0".to_owned()), device.counters()));
        devices.push(Box::new(device));
    }
    if let Some(console) = config.console.take() {
        let terminal: Box<dyn Terminal> = match console {
            ConsoleConfig::Pty(made) => {
                stdio::tell(&format!("flatboot: console: {}", made.path().display()));
                pty = Some(made.path().to_owned());
                Box::new(made)
            }
            ConsoleConfig::Socket(bound, listener, _) => {
                sockets.push(bound);
                Box::new(Socket::new(listener).map_err(host("console"))?)
            }
        };
        let device = console::Console::new(terminal);
        counters.push(("_console".to_owned(), device.counters()));
        devices.push(Box::new(device));
    }
    if let Some(config) = config.balloon {
        let device = Balloon::new(config.size, config.deflate_on_oom, config.free_page_reporting);
        balloon = Some(device.control());
        counters.push(("_balloon".to_owned(), device.counters()));
        devices.push(Box::new(device));
    }
    if let Some(source) = config.rng.take() {
        let rng = Rng::new(source);
        counters.push(("_rng".to_owned(), rng.counters()));
        devices.push(Box::new(rng));
    }
    Ok(Virtio { devices, counters, sockets, pty, balloon })
}

/// Puts `device` at virtio-mmio slot `slot`; returns what serves its queues.
fn virtio(
    slot: u64,
    device: Box<dyn VirtioDevice>,
    vm: &Vm,
    memory: &GuestMemory,
    bus: &mut Bus,
) -> Result<Vec<VirtioWorker>, MachineError> {
    let start = layout::VIRTIO_MMIO.start + slot * layout::VIRTIO_MMIO_STRIDE;
    let range = Range { start, end: start + layout::VIRTIO_MMIO_STRIDE };
    let irq = line(vm, layout::GSI_VIRTIO.start + low32(slot))?;
    let (transport, workers) = VirtioMmio::new(device, memory, irq).map_err(host("virtio device"))?;
    for (queue, notify) in (0u32..).zip(transport.notify_fds()) {
        vm.connect_doorbell(notify, start + mmio::QUEUE_NOTIFY, queue)?;
    }
    bus.insert(range, shared(transport))?;
    Ok(workers)
}
