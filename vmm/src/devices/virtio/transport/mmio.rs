// SPDX-License-Identifier: Apache-2.0
//! virtio over MMIO (virtio 1.2, section 4.2), version 2: what the driver sees of a device.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_DRIVER_OK, VIRTIO_CONFIG_S_FAILED,
    VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_NEEDS_RESET, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_ids::{VIRTIO_ID_BLOCK, VIRTIO_ID_NET};
use virtio_bindings::virtio_mmio::{
    VIRTIO_MMIO_CONFIG, VIRTIO_MMIO_CONFIG_GENERATION, VIRTIO_MMIO_DEVICE_FEATURES, VIRTIO_MMIO_DEVICE_FEATURES_SEL,
    VIRTIO_MMIO_DEVICE_ID, VIRTIO_MMIO_DRIVER_FEATURES, VIRTIO_MMIO_DRIVER_FEATURES_SEL, VIRTIO_MMIO_INT_VRING,
    VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INTERRUPT_STATUS, VIRTIO_MMIO_MAGIC_VALUE, VIRTIO_MMIO_QUEUE_AVAIL_HIGH,
    VIRTIO_MMIO_QUEUE_AVAIL_LOW, VIRTIO_MMIO_QUEUE_DESC_HIGH, VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_NOTIFY,
    VIRTIO_MMIO_QUEUE_NUM, VIRTIO_MMIO_QUEUE_NUM_MAX, VIRTIO_MMIO_QUEUE_READY, VIRTIO_MMIO_QUEUE_SEL,
    VIRTIO_MMIO_QUEUE_USED_HIGH, VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_SHM_BASE_HIGH, VIRTIO_MMIO_SHM_BASE_LOW,
    VIRTIO_MMIO_SHM_LEN_HIGH, VIRTIO_MMIO_SHM_LEN_LOW, VIRTIO_MMIO_STATUS, VIRTIO_MMIO_VENDOR_ID, VIRTIO_MMIO_VERSION,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::line::Line;
use crate::devices::bus::{BusDevice, GuestRequest, Unsaved};
use crate::devices::virtio::block::SECTOR_SIZE;
use crate::devices::virtio::interrupt::Interrupt;
use crate::devices::virtio::queues::{QueueSetup, Queues};
use crate::devices::virtio::{ConfigSpace, Lane, VirtioDevice, VirtioWorker};
use crate::memory::GuestMemory;
use crate::state::{DeviceState, LaneState, Mismatch, VirtioState};

/// Offset of the `QueueNotify` register: where KVM should watch for notifications. The value written is the queue's index,
/// 32 bits.
pub const QUEUE_NOTIFY: u64 = VIRTIO_MMIO_QUEUE_NOTIFY as u64;
/// Offset of the `InterruptACK` register,
pub const INTERRUPT_ACK: u64 = VIRTIO_MMIO_INTERRUPT_ACK as u64;
/// and what is written there once queues have been looked at, 32 bits.
pub const LOOKED_AT_QUEUES: u32 = VIRTIO_MMIO_INT_VRING;

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"FLAT");
/// Length and base of a shared memory region that does not exist, both halves.
const NO_SHARED_MEMORY: u32 = u32::MAX;
/// What every device offers, whatever its kind.
const TRANSPORT_FEATURES: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_INDIRECT_DESC | 1 << VIRTIO_RING_F_EVENT_IDX;

/// The registers of one virtio device; the vCPU threads' side of it.
pub struct VirtioMmio {
    /// One for each lane of the device.
    driven: Vec<Arc<Queues>>,
    line: Arc<Line>,
    notify: Arc<[EventFd]>,
    device_type: u32,
    config: ConfigSpace,
    offered: u64,
    accepted: u64,
    device_features_select: u32,
    driver_features_select: u32,
    queue_select: u32,
    queues: Vec<QueueSetup>,
    /// The queues are served outside: who does it interrupts the driver, and does not say so in the register that says why.
    outside: bool,
    /// The status register without `NEEDS_RESET`, which the line has.
    status: u32,
    /// The driver has reset the device while requests were in flight: until the last one is over, the status does not read 0 (virtio
    /// 1.2, section 2.4), and nothing can be written.
    resetting: bool,
    /// What of the configuration space may be another one in a VM that is restored.
    renewed: Range<usize>,
    /// It is, and the driver has not been told.
    untold: bool,
}

impl fmt::Debug for VirtioMmio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtioMmio")
            .field("device_type", &self.device_type)
            .field("status", &self.status)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

impl VirtioMmio {
    /// Puts `device` on the transport. Its requests come from and go to `memory`; it interrupts by `irq`, as an edge.
    ///
    /// Returns both sides: the registers, for the MMIO bus, and the workers, to be started, of which there is at least one.
    pub fn new(
        mut device: Box<dyn VirtioDevice>,
        memory: &GuestMemory,
        irq: EventFd,
    ) -> io::Result<(Self, Vec<VirtioWorker>)> {
        let queues: Vec<_> = device.queue_sizes().iter().copied().map(QueueSetup::new).collect();
        let notify: io::Result<Arc<[EventFd]>> =
            queues.iter().map(|_| EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)).collect();
        let notify = notify?;
        let line = Arc::new(Line::new(irq));
        let (device_type, config, features) = (device.device_type(), device.config(), device.features());
        let interrupt: Arc<dyn Interrupt> = line.clone();
        config.connect(Arc::clone(&interrupt));
        let renewed = device.renewed();
        let is_outside = device.outside().is_some();
        let lanes = all_lanes(device, queues.len());
        let (mut driven, mut workers) = (Vec::with_capacity(lanes.len()), Vec::with_capacity(lanes.len()));
        let mut next = 0;
        for Lane { queues, mut device } in lanes {
            let own = next..next + queues;
            next = own.end;
            // The worker of what is served outside hears of the driver's resets and of nothing else.
            let (outside, heard) = match device.outside() {
                Some(outside) => {
                    outside.connect(&notify, line.event())?;
                    let told = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
                    (Some(told.try_clone()?), Arc::from([told]))
                }
                None => (None, Arc::clone(&notify)),
            };
            let (interrupt, kept) = (Arc::clone(&interrupt), device.save().unwrap_or_default());
            let shared = Arc::new(Queues::new(own, memory.clone(), interrupt, outside, kept));
            workers.push(VirtioWorker::new(device, Arc::clone(&shared), heard)?);
            driven.push(shared);
        }
        let transport = Self {
            driven,
            line,
            notify,
            device_type,
            config,
            offered: features | TRANSPORT_FEATURES,
            accepted: 0,
            device_features_select: 0,
            driver_features_select: 0,
            queue_select: 0,
            queues,
            outside: is_outside,
            status: 0,
            resetting: false,
            renewed,
            untold: false,
        };
        Ok((transport, workers))
    }

    /// By queue index, what to signal when the guest writes that index to [`QUEUE_NOTIFY`]: for KVM's ioeventfd. Without
    /// one the write reaches [`BusDevice::write`], which does the same.
    #[must_use]
    pub fn notify_fds(&self) -> &[EventFd] {
        &self.notify
    }

    /// Whether nothing happens when the guest writes [`LOOKED_AT_QUEUES`] to [`INTERRUPT_ACK`], which it does at each interrupt: KVM may
    /// keep that to itself.
    #[must_use]
    pub const fn ignores_acknowledgements(&self) -> bool {
        self.outside
    }

    fn has(&self, bits: u32) -> bool {
        self.status & bits == bits
    }

    fn queue(&self) -> Option<&QueueSetup> {
        self.queues.get(usize::try_from(self.queue_select).ok()?)
    }

    /// A queue that was taken back reads as ready until its last request is over: drivers read the value back for that
    /// (virtio 1.2, section 4.2.2.2).
    fn queue_is_in_use(&self) -> bool {
        let index = usize::try_from(self.queue_select).unwrap_or(usize::MAX);
        self.queue().is_some_and(|queue| queue.ready) || !self.driven.iter().all(|lane| lane.is_stopped(index))
    }

    fn read_register(&mut self, register: u32) -> u32 {
        self.finish_reset();
        match register {
            VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            VIRTIO_MMIO_VERSION => VERSION,
            VIRTIO_MMIO_DEVICE_ID => self.device_type,
            VIRTIO_MMIO_VENDOR_ID => VENDOR,
            VIRTIO_MMIO_DEVICE_FEATURES => match self.device_features_select {
                0 => low(self.offered),
                1 => low(self.offered >> 32),
                _ => 0,
            },
            VIRTIO_MMIO_QUEUE_NUM_MAX => self.queue().map_or(0, |queue| queue.max_size.into()),
            VIRTIO_MMIO_QUEUE_READY => self.queue_is_in_use().into(),
            VIRTIO_MMIO_INTERRUPT_STATUS => self.line.status() | self.interrupts_outside(),
            VIRTIO_MMIO_STATUS if self.line.wants_reset() => self.status | VIRTIO_CONFIG_S_NEEDS_RESET,
            VIRTIO_MMIO_STATUS => self.status,
            VIRTIO_MMIO_SHM_LEN_LOW
            | VIRTIO_MMIO_SHM_LEN_HIGH
            | VIRTIO_MMIO_SHM_BASE_LOW
            | VIRTIO_MMIO_SHM_BASE_HIGH => NO_SHARED_MEMORY,
            VIRTIO_MMIO_CONFIG_GENERATION => self.config.generation(),
            _ => 0,
        }
    }

    /// Linux then looks at each queue, and takes an interrupt that was for none of them as one for somebody else: there is none
    /// but for a configuration that has changed, which counts as its own.
    fn interrupts_outside(&self) -> u32 {
        if self.outside && self.has(VIRTIO_CONFIG_S_DRIVER_OK) { VIRTIO_MMIO_INT_VRING } else { 0 }
    }

    fn write_register(&mut self, register: u32, value: u32) {
        self.finish_reset();
        if self.resetting {
            return;
        }
        match register {
            VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.device_features_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_features_select = value,
            VIRTIO_MMIO_DRIVER_FEATURES => self.accept_features(value),
            VIRTIO_MMIO_QUEUE_SEL => self.queue_select = value,
            VIRTIO_MMIO_QUEUE_NOTIFY => self.notify(value),
            VIRTIO_MMIO_INTERRUPT_ACK => self.line.acknowledge(value),
            VIRTIO_MMIO_STATUS => self.write_status(value),
            VIRTIO_MMIO_QUEUE_READY if value == 0 => self.stop_queue(),
            _ => self.configure_queue(register, value),
        }
    }

    /// Features are the driver's to choose between `DRIVER` and `FEATURES_OK`.
    fn accept_features(&mut self, value: u32) {
        if !self.has(VIRTIO_CONFIG_S_DRIVER) || self.has(VIRTIO_CONFIG_S_FEATURES_OK) {
            return;
        }
        match self.driver_features_select {
            0 => set_low(&mut self.accepted, value),
            1 => set_high(&mut self.accepted, value),
            // Features beyond 64 are neither offered nor known.
            _ => {}
        }
    }

    /// Processing is the worker's; this only wakes it.
    fn notify(&self, queue: u32) {
        let event = usize::try_from(queue).ok().and_then(|index| self.notify.get(index));
        if let Some(event) = event.filter(|_| self.has(VIRTIO_CONFIG_S_DRIVER_OK)) {
            // A full counter has a notification pending already.
            let _ = event.write(1);
        }
    }

    /// Queues are described between `FEATURES_OK` and `DRIVER_OK`.
    fn configure_queue(&mut self, register: u32, value: u32) {
        if !self.has(VIRTIO_CONFIG_S_FEATURES_OK) || self.has(VIRTIO_CONFIG_S_DRIVER_OK) {
            return;
        }
        let index = usize::try_from(self.queue_select).unwrap_or(usize::MAX);
        let Some(queue) = self.queues.get_mut(index) else { return };
        match register {
            // A size that is no u16 becomes 0, which like any other bad size fails when the queue is put to use.
            VIRTIO_MMIO_QUEUE_NUM => queue.size = u16::try_from(value).unwrap_or(0),
            VIRTIO_MMIO_QUEUE_READY => queue.ready = true,
            VIRTIO_MMIO_QUEUE_DESC_LOW => set_low(&mut queue.descriptors, value),
            VIRTIO_MMIO_QUEUE_DESC_HIGH => set_high(&mut queue.descriptors, value),
            VIRTIO_MMIO_QUEUE_AVAIL_LOW => set_low(&mut queue.available, value),
            VIRTIO_MMIO_QUEUE_AVAIL_HIGH => set_high(&mut queue.available, value),
            VIRTIO_MMIO_QUEUE_USED_LOW => set_low(&mut queue.used, value),
            VIRTIO_MMIO_QUEUE_USED_HIGH => set_high(&mut queue.used, value),
            _ => {}
        }
    }

    /// The driver takes a queue back; after this the device does not touch it.
    fn stop_queue(&mut self) {
        let index = usize::try_from(self.queue_select).unwrap_or(usize::MAX);
        if let Some(queue) = self.queues.get_mut(index) {
            queue.ready = false;
            self.driven.iter().for_each(|lane| lane.stop(index));
        }
    }

    /// The steps of section 3.1.1 of virtio 1.2, in their order; a step out of order is as if not taken. No step is taken
    /// back but by reset.
    fn write_status(&mut self, value: u32) {
        if value == 0 {
            self.reset();
            return;
        }
        let steps = [
            (0, VIRTIO_CONFIG_S_ACKNOWLEDGE),
            (VIRTIO_CONFIG_S_ACKNOWLEDGE, VIRTIO_CONFIG_S_DRIVER),
            (VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_FEATURES_OK),
            (VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_DRIVER_OK),
        ];
        for (before, step) in steps {
            if value & step == 0 || self.has(step) || !self.has(before) || self.has(VIRTIO_CONFIG_S_FAILED) {
                continue;
            }
            if step == VIRTIO_CONFIG_S_FEATURES_OK && !self.features_are_acceptable() {
                continue;
            }
            self.status |= step;
            if step == VIRTIO_CONFIG_S_DRIVER_OK {
                self.config.set_heard(true);
                self.driven.iter().for_each(|lane| lane.activate(self.accepted, &self.queues));
            }
        }
        self.status |= value & VIRTIO_CONFIG_S_FAILED;
    }

    /// Nothing that was not offered, and no legacy driver.
    fn features_are_acceptable(&self) -> bool {
        self.accepted & !self.offered == 0 && self.accepted & (1 << VIRTIO_F_VERSION_1) != 0
    }

    /// Waits for no request: what is in progress comes to its end while the status says that the reset is not over. But Linux
    /// does not look on this transport, so a server outside, which never takes long, is waited for.
    fn reset(&mut self) {
        self.config.set_heard(false);
        // Here, and not when the worker hears of the reset: the next driver may have written by then.
        self.config.clear_written();
        // What a lane says before it is reset, the reset of the last one clears.
        self.driven.iter().for_each(|lane| lane.reset());
        // Behind that: no lane takes a request of the old driver's for one of the next.
        self.config.count_reset();
        if !self.outside {
            // Workers hear of it now, and not when something else happens: somebody may wait for what they hold. A full counter wakes
            // as well.
            self.notify.iter().for_each(|event| drop(event.write(1)));
        }
        self.accepted = 0;
        self.device_features_select = 0;
        self.driver_features_select = 0;
        self.queue_select = 0;
        for queue in &mut self.queues {
            *queue = QueueSetup::new(queue.max_size);
        }
        // A driver that does not wait for the end of it, as Linux's, finds its features refused, and takes it for no success of its
        // own that the one before it had reached.
        self.status &= VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER;
        self.resetting = true;
        self.finish_reset();
    }

    /// What the driver has described, or why it cannot be.
    fn restore_queues(&mut self, state: &VirtioState) -> Result<(), Mismatch> {
        if state.queues.len() != self.queues.len() {
            return Err(Mismatch::of("number of queues", state.queues.len(), self.queues.len()));
        }
        let (was, is) = (vhost(state.lanes.first()), vhost(self.driven.first().map(|lane| lane.kept()).as_ref()));
        if self.device_type == VIRTIO_ID_NET && was != is {
            return Err(Mismatch::of("vhost", was, format!("{is}, or --net be given with vhost={was}")));
        }
        if state.lanes.len() != self.driven.len() {
            return Err(Mismatch::Kind);
        }
        for (setup, saved) in self.queues.iter_mut().zip(&state.queues) {
            *setup = QueueSetup::restored(saved, setup.max_size)?;
        }
        if !self.has(VIRTIO_CONFIG_S_DRIVER_OK) {
            return Ok(());
        }
        let positions: Vec<_> = state.queues.iter().map(|queue| queue.position).collect();
        for (lane, kept) in self.driven.iter().zip(&state.lanes) {
            lane.restore(self.accepted, &self.queues, &positions, kept.clone())?;
        }
        self.config.set_heard(true);
        Ok(())
    }

    fn finish_reset(&mut self) {
        if self.resetting && self.driven.iter().all(|lane| lane.is_quiet()) {
            self.resetting = false;
            self.status = 0;
        }
    }
}

/// What [`is_reached`] takes, in words.
const STATUSES: &str = "a driver's steps in their order: 0, 1, 3, 11 or 15, and 128 more if it has failed";

/// Whether a driver's steps can have led to `status`: see [`write_status`](VirtioMmio::write_status).
const fn is_reached(status: u32) -> bool {
    // ACKNOWLEDGE, DRIVER, FEATURES_OK and DRIVER_OK are bits 0, 1, 3 and 2.
    matches!(status & !VIRTIO_CONFIG_S_FAILED, 0 | 0b1 | 0b11 | 0b1011 | 0b1111)
}

/// Whether the host's kernel serves the interface whose first lane this is, as `--net vhost=` has it.
const fn vhost(lane: Option<&LaneState>) -> &'static str {
    if matches!(lane, Some(LaneState::Vhost { .. })) { "on" } else { "off" }
}

/// Whether a disk that has what is in `config` has as many sectors as the one that was `saved` with its own: that comes first there.
fn check_size(config: &ConfigSpace, saved: &[u8]) -> Result<(), Mismatch> {
    let bytes = |sectors: [u8; 8]| u64::from_le_bytes(sectors).saturating_mul(SECTOR_SIZE);
    match (bytes(config.get(0)), saved.first_chunk().copied().map(bytes)) {
        (is, Some(was)) if is != was => Err(Mismatch::of("size", is, format!("{was} bytes, as it was"))),
        _ => Ok(()),
    }
}

/// `device`, with those of its `queues` that no lane has, and its lanes, in the order of their queues.
fn all_lanes(mut device: Box<dyn VirtioDevice>, queues: usize) -> Vec<Lane> {
    let others = device.lanes();
    let taken: usize = others.iter().map(|lane| lane.queues).sum();
    [Lane { queues: queues.saturating_sub(taken), device }].into_iter().chain(others).collect()
}

/// The low half of `value`.
fn low(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn set_low(value: &mut u64, low: u32) {
    *value = *value & !0xffff_ffff | u64::from(low);
}

fn set_high(value: &mut u64, high: u32) {
    *value = *value & 0xffff_ffff | u64::from(high) << 32;
}

/// The register at `offset`, which only aligned 32-bit accesses reach.
fn register(offset: u64, width: usize) -> Option<u32> {
    u32::try_from(offset).ok().filter(|offset| offset % 4 == 0 && width == 4)
}

/// Where `offset` is in the configuration space.
fn in_config(offset: u64) -> Option<usize> {
    let at = offset.checked_sub(VIRTIO_MMIO_CONFIG.into())?;
    Some(usize::try_from(at).unwrap_or(usize::MAX))
}

impl BusDevice for VirtioMmio {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        if let Some(at) = in_config(offset) {
            self.config.read(at, data);
            return;
        }
        match (register(offset, data.len()), <&mut [u8; 4]>::try_from(&mut *data)) {
            (Some(register), Ok(data)) => *data = self.read_register(register).to_le_bytes(),
            _ => data.fill(0xff),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        if let Some(at) = in_config(offset) {
            // Of a driver that has reset the device nothing counts until that is over, this neither.
            self.finish_reset();
            if !self.resetting {
                self.config.write(at, data);
            }
        } else if let Some(register) = register(offset, data.len())
            && let Ok(value) = data.try_into()
        {
            self.write_register(register, u32::from_le_bytes(value));
        }
        None
    }

    fn save(&mut self) -> Result<Option<DeviceState>, Unsaved> {
        self.finish_reset();
        if self.resetting {
            return Err(Unsaved::Resetting);
        }
        if !self.driven.iter().all(|lane| lane.is_told()) {
            return Err(Unsaved::Untold);
        }
        let position = |index| self.driven.iter().find_map(|lane| lane.position(index));
        let queues = self.queues.iter().enumerate().map(|(index, queue)| queue.save(position(index)));
        Ok(Some(DeviceState::Virtio(Box::new(VirtioState {
            device_type: self.device_type,
            accepted: self.accepted,
            device_features_select: self.device_features_select,
            driver_features_select: self.driver_features_select,
            queue_select: self.queue_select,
            status: self.status,
            needs_reset: self.line.wants_reset(),
            interrupt_status: self.line.status(),
            config: self.config.bytes(),
            config_generation: self.config.generation(),
            queues: queues.collect(),
            lanes: self.driven.iter().map(|lane| lane.kept()).collect(),
        }))))
    }

    fn restore(&mut self, state: &DeviceState) -> Result<(), Mismatch> {
        let DeviceState::Virtio(state) = state else { return Err(Mismatch::Kind) };
        if state.device_type != self.device_type {
            return Err(Mismatch::of("kind of virtio device", state.device_type, self.device_type));
        }
        let missing = state.accepted & !self.offered;
        if missing != 0 {
            let is = format!("{:#x}", state.accepted);
            return Err(Mismatch::of("accepted features", is, format!("without {missing:#x}, which are not here")));
        }
        self.accepted = state.accepted;
        self.device_features_select = state.device_features_select;
        self.driver_features_select = state.driver_features_select;
        self.queue_select = state.queue_select;
        if !is_reached(state.status) {
            return Err(Mismatch::of("status", state.status, STATUSES));
        }
        self.status = state.status;
        if self.has(VIRTIO_CONFIG_S_FEATURES_OK) && !self.features_are_acceptable() {
            return Err(Mismatch::of("status", state.status, "without FEATURES_OK, as features are"));
        }
        if self.device_type == VIRTIO_ID_BLOCK {
            check_size(&self.config, &state.config)?;
        }
        self.untold = self.config.restore(&state.config, state.config_generation, &self.renewed)?;
        self.line.restore(state.interrupt_status, state.needs_reset);
        self.restore_queues(state)
    }

    /// The driver may find that it was interrupted for nothing, and the device that it was notified for nothing: both look.
    fn awake(&mut self) {
        if !self.has(VIRTIO_CONFIG_S_DRIVER_OK) {
            return;
        }
        // A full counter has a notification pending already.
        self.notify.iter().for_each(|notify| drop(notify.write(1)));
        if self.untold || self.line.wants_reset() {
            self.line.changed();
        }
        self.line.used();
    }
}
