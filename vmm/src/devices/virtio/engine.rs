// SPDX-License-Identifier: Apache-2.0
//! The side of a virtio device that takes requests off its queues, on the event loop's thread.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use event_manager::{EventOps, EventSet, Events, MutEventSubscriber};
use virtio_bindings::virtio_mmio::{VIRTIO_MMIO_INT_CONFIG, VIRTIO_MMIO_INT_VRING};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;
use vmm_sys_util::eventfd::EventFd;

use super::{Request, VirtioDevice};
use crate::devices::bus::lock;
use crate::memory::GuestMemory;

/// After this many requests the queue waits its turn again, so that no guest keeps the event loop from its other work.
const REQUESTS_PER_TURN: u32 = 16;
/// After this many bytes likewise.
const BYTES_PER_TURN: u64 = 16 << 20;

/// A queue that the device cannot use: the driver must reset the device.
#[derive(Debug, thiserror::Error)]
pub(super) enum QueueError {
    #[error("virtqueue {0} is not inside guest memory")]
    Outside(usize),
    #[error("virtqueue {index} is broken")]
    Broken { index: usize, source: virtio_queue::Error },
}

/// What interrupts the driver, and why. Shared by the transport and the engine without a lock.
pub(super) struct Interrupt {
    /// The `InterruptStatus` register.
    status: AtomicU32,
    needs_reset: AtomicBool,
    line: EventFd,
}

impl Interrupt {
    pub(super) fn new(line: EventFd) -> Self {
        Self { status: AtomicU32::new(0), needs_reset: AtomicBool::new(false), line }
    }

    pub(super) fn status(&self) -> u32 {
        self.status.load(Ordering::SeqCst)
    }

    pub(super) fn acknowledge(&self, causes: u32) {
        self.status.fetch_and(!causes, Ordering::SeqCst);
    }

    pub(super) fn needs_reset(&self) -> bool {
        self.needs_reset.load(Ordering::SeqCst)
    }

    pub(super) fn clear(&self) {
        self.status.store(0, Ordering::SeqCst);
        self.needs_reset.store(false, Ordering::SeqCst);
    }

    /// The cause is set before the line is raised: the line is an edge, and the handler looks once.
    fn raise(&self, cause: u32) {
        self.status.fetch_or(cause, Ordering::SeqCst);
        // A full counter has an interrupt pending already.
        let _ = self.line.write(1);
    }

    /// `DEVICE_NEEDS_RESET`, and a configuration change to tell of it (virtio 1.2, section 2.1.2).
    fn fail(&self) {
        self.needs_reset.store(true, Ordering::SeqCst);
        self.raise(VIRTIO_MMIO_INT_CONFIG);
    }
}

/// A queue as the driver described it, not yet believed.
#[derive(Clone, Debug)]
pub(super) struct QueueSetup {
    pub(super) max_size: u16,
    pub(super) size: u16,
    pub(super) ready: bool,
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

impl QueueSetup {
    pub(super) fn new(max_size: u16) -> Self {
        Self { max_size, size: max_size, ready: false, descriptors: 0, available: 0, used: 0 }
    }

    fn build(&self, event_index: bool) -> Result<Queue, virtio_queue::Error> {
        let mut queue = Queue::new(self.max_size)?;
        queue.try_set_size(self.size)?;
        queue.try_set_desc_table_address(GuestAddress(self.descriptors))?;
        queue.try_set_avail_ring_address(GuestAddress(self.available))?;
        queue.try_set_used_ring_address(GuestAddress(self.used))?;
        queue.set_event_idx(event_index);
        queue.set_ready(true);
        Ok(queue)
    }
}

/// The device and its live queues.
pub(super) struct Engine {
    device: Box<dyn VirtioDevice>,
    memory: GuestMemory,
    interrupt: Arc<Interrupt>,
    /// By queue index; none between reset and activation, and for a queue that the driver does not use.
    queues: Vec<Option<Queue>>,
    /// Its buffers are used again for each request.
    request: Request,
}

impl Engine {
    pub(super) fn new(device: Box<dyn VirtioDevice>, memory: GuestMemory, interrupt: Arc<Interrupt>) -> Self {
        Self { device, memory, interrupt, queues: Vec::new(), request: Request::default() }
    }

    /// `DRIVER_OK`. A queue that cannot work makes the whole device ask for a reset.
    pub(super) fn activate(&mut self, features: u64, setups: &[QueueSetup]) {
        let event_index = features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        let queues = setups.iter().enumerate().map(|(index, setup)| {
            if !setup.ready {
                return Ok(None);
            }
            let queue = setup.build(event_index).map_err(|source| QueueError::Broken { index, source })?;
            if queue.is_valid(&self.memory) { Ok(Some(queue)) } else { Err(QueueError::Outside(index)) }
        });
        match queues.collect() {
            Ok(queues) => {
                self.queues = queues;
                self.device.activate(features);
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Forgets all queues; nothing of guest memory is touched after this returns.
    pub(super) fn stop(&mut self) {
        self.queues.clear();
    }

    /// Forgets one queue.
    pub(super) fn stop_queue(&mut self, index: usize) {
        if let Some(queue) = self.queues.get_mut(index) {
            *queue = None;
        }
    }

    /// Gives queue `index` one turn. True if requests may be left.
    fn process(&mut self, index: usize) -> bool {
        match self.turn(index) {
            Ok(more) => more,
            Err(source) => {
                self.fail(&QueueError::Broken { index, source });
                false
            }
        }
    }

    fn fail(&mut self, error: &QueueError) {
        tracing::debug!(error = error as &dyn std::error::Error, "virtio device needs a reset");
        self.stop();
        self.interrupt.fail();
    }

    fn turn(&mut self, index: usize) -> Result<bool, virtio_queue::Error> {
        let Self { device, memory, interrupt, queues, request } = self;
        let Some(Some(queue)) = queues.get_mut(index) else { return Ok(false) };
        let memory = &*memory;
        let (mut requests, mut bytes, mut completed) = (0, 0, false);
        queue.disable_notification(memory)?;
        let more = loop {
            let Some(chain) = queue.iter(memory)?.next() else {
                // An available index that the driver turns back while we look could keep us here: that counts too.
                requests += 1;
                if queue.enable_notification(memory)? && requests < REQUESTS_PER_TURN {
                    continue;
                }
                break requests >= REQUESTS_PER_TURN;
            };
            let head = chain.head_index();
            request.load(chain, queue.size());
            let written = device.handle(index, memory, request);
            queue.add_used(memory, head, written)?;
            completed = true;
            requests += 1;
            bytes += request.bytes();
            if requests >= REQUESTS_PER_TURN || bytes >= BYTES_PER_TURN {
                break true;
            }
        };
        if completed && queue.needs_notification(memory)? {
            interrupt.raise(VIRTIO_MMIO_INT_VRING);
        }
        Ok(more)
    }
}

/// The event-loop side of a virtio device: add it to an event manager.
pub struct VirtioWorker {
    pub(super) engine: Arc<Mutex<Engine>>,
    /// One for each queue; the guest's notifications arrive here, from KVM (ioeventfd) or from the transport.
    pub(super) notify: Arc<[EventFd]>,
}

impl fmt::Debug for VirtioWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtioWorker").field("notify", &self.notify).finish_non_exhaustive()
    }
}

impl VirtioWorker {
    /// Gives queue `index` a turn, if it was notified since the last one. True if it was.
    pub fn serve(&self, index: usize) -> bool {
        let Some(notify) = self.notify.get(index) else { return false };
        match notify.read() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                tracing::warn!(%error, "virtio notification");
                return false;
            }
        }
        // Another turn comes after everybody else's.
        if lock(&self.engine).process(index) {
            let _ = notify.write(1);
        }
        true
    }
}

impl MutEventSubscriber for VirtioWorker {
    fn process(&mut self, events: Events, _ops: &mut EventOps<'_>) {
        if let Ok(index) = usize::try_from(events.data()) {
            self.serve(index);
        }
    }

    fn init(&mut self, ops: &mut EventOps<'_>) {
        for (index, notify) in (0..).zip(self.notify.iter()) {
            if let Err(error) = ops.add(Events::with_data(notify, index, EventSet::IN)) {
                tracing::error!(%error, "virtio queue {index} will not be served");
            }
        }
    }
}
