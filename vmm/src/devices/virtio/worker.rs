// SPDX-License-Identifier: Apache-2.0
//! A device's own thread: it waits for notifications, and gives the queues their turns.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::queues::{Next, Queues};
use super::space::Space;
use super::{Request, ResizeError, VirtioDevice};
use crate::devices::bus::lock;
use crate::sandbox::Kind;

/// Stack of a worker: a request's buffers are guest memory or on the heap.
const STACK: usize = 128 << 10;
/// Events taken at once; a device has few queues.
const EVENTS: usize = 8;
/// How long a worker may take to end. Nothing depends on that it has.
const FINISH: Duration = Duration::from_millis(500);
/// Names the worker's own event among those of queues.
const ORDERS: u64 = u64::MAX;
/// Marks a queue's number: not the driver has something for it, but one of the device's sources.
const SOURCE: u64 = 1 << 63;

/// Why a device has no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its notifications cannot be waited for.
    #[error("worker {name}: its queues cannot be watched")]
    Watch {
        /// The device.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The host has no room for another thread.
    #[error("worker {name}: its thread cannot be started")]
    Thread {
        /// The device.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It did not come to rest in time.
    #[error("worker {name}: a request has not come to its end within {} s", .limit.as_secs())]
    Busy {
        /// The device.
        name: String,
        /// How long it had.
        limit: Duration,
    },
}

/// A device, or one of its lanes, with its queues, and no thread yet.
pub struct VirtioWorker {
    device: Box<dyn VirtioDevice>,
    queues: Arc<Queues>,
    /// One for each queue; the guest's notifications arrive here, from KVM (ioeventfd) or from the transport.
    notify: Arc<[EventFd]>,
    space: Arc<Space>,
    orders: Arc<Orders>,
    /// Its buffers are used again for each request.
    request: Request,
    /// By queue, when it is to be looked at again, whether the driver notifies or not.
    due: Vec<Option<Instant>>,
}

/// What is asked of a worker, and how far it is.
struct Orders {
    wake: EventFd,
    state: Mutex<OrderState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what is asked and what is done, of two things")]
struct OrderState {
    pause: bool,
    paused: bool,
    finish: bool,
    finished: bool,
    /// The size that the device is to have,
    resize: Option<u64>,
    /// and what has become of that.
    resized: Option<Result<(), ResizeError>>,
}

impl fmt::Debug for VirtioWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtioWorker").field("notify", &self.notify).finish_non_exhaustive()
    }
}

impl VirtioWorker {
    pub(super) fn new(
        device: Box<dyn VirtioDevice>,
        queues: Arc<Queues>,
        notify: Arc<[EventFd]>,
        space: Arc<Space>,
    ) -> io::Result<Self> {
        let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        let orders = Arc::new(Orders { wake, state: Mutex::default(), changed: Condvar::new() });
        let due = vec![None; notify.len()];
        Ok(Self { device, queues, notify, space, orders, request: Request::default(), due })
    }

    /// What its thread may do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.device.thread()
    }

    /// Starts the thread `name`. The first that it does is `begin`, whose result it keeps as long as it runs; without one it does
    /// nothing.
    pub fn start<G>(
        self,
        name: String,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Running, WorkerError> {
        let epoll = self.watch().map_err(|source| WorkerError::Watch { name: name.clone(), source })?;
        let orders = Arc::clone(&self.orders);
        let builder = thread::Builder::new().name(name.clone()).stack_size(STACK);
        let thread = builder.spawn(move || {
            let orders = Arc::clone(&self.orders);
            if let Some(_kept) = begin() {
                self.run(&epoll);
            }
            lock(&orders.state).finished = true;
            orders.changed.notify_all();
        });
        match thread {
            Ok(thread) => Ok(Running { name, orders, thread: Some(thread) }),
            Err(source) => Err(WorkerError::Thread { name, source }),
        }
    }

    /// An epoll instance that knows every queue. A queue that it does not know would never be served.
    fn watch(&self) -> io::Result<Epoll> {
        let epoll = Epoll::new()?;
        let queues = (0..).zip(self.notify.iter()).filter(|(index, _)| self.queues.has(*index));
        let events = queues.map(|(index, event)| (index as u64, event)).chain([(ORDERS, &self.orders.wake)]);
        for (data, event) in events {
            let event_set = EpollEvent::new(EventSet::IN, data);
            epoll.ctl(ControlOperation::Add, event.as_raw_fd(), event_set)?;
        }
        for source in self.device.sources() {
            let edge = if source.writable { EventSet::OUT } else { EventSet::IN };
            let event_set = EpollEvent::new(edge | EventSet::EDGE_TRIGGERED, SOURCE | source.queue as u64);
            epoll.ctl(ControlOperation::Add, source.descriptor, event_set)?;
        }
        Ok(epoll)
    }

    fn run(mut self, epoll: &Epoll) {
        let mut events = [EpollEvent::default(); EVENTS];
        loop {
            let count = match epoll.wait(self.patience(), &mut events) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The descriptors are this worker's own and all open: no other error can be.
                Err(error) => {
                    tracing::error!(%error, "virtio worker");
                    return;
                }
            };
            for event in events.iter().take(count) {
                match event.data() {
                    ORDERS if !self.obey() => return,
                    ORDERS => {}
                    source if source & SOURCE != 0 => self.wake(source & !SOURCE),
                    queue => drop(usize::try_from(queue).map(|index| self.serve(index))),
                }
            }
            self.wake_what_is_due();
        }
    }

    /// A source of queue `queue` has something: that gets a turn as if it had been notified.
    fn wake(&self, queue: u64) {
        if let Some(notify) = usize::try_from(queue).ok().and_then(|queue| self.notify.get(queue)) {
            // A full counter has a notification pending already.
            let _ = notify.write(1);
        }
    }

    /// How long to wait for events, in milliseconds as epoll has it: until a queue is due, or for ever.
    fn patience(&self) -> i32 {
        let Some(next) = self.due.iter().flatten().min() else { return -1 };
        // Not a part of one too early, or it would be asked for many times.
        let left = next.saturating_duration_since(Instant::now()).as_nanos().div_ceil(1_000_000);
        i32::try_from(left).unwrap_or(i32::MAX)
    }

    /// Notifies the queues that have waited long enough.
    fn wake_what_is_due(&mut self) {
        let now = Instant::now();
        for (due, notify) in self.due.iter_mut().zip(self.notify.iter()) {
            if due.take_if(|due| *due <= now).is_some() {
                // A full counter has a notification pending already.
                let _ = notify.write(1);
            }
        }
    }

    /// Waits for what is in flight.
    pub(super) fn settle(&mut self) {
        self.queues.drain(&mut *self.device);
    }

    /// Rests while a pause is asked for, with nothing in flight. False when it is to end.
    fn obey(&mut self) -> bool {
        let orders = Arc::clone(&self.orders);
        // Non-blocking: what it says is in the state.
        let _ = orders.wake.read();
        self.resize();
        match &*lock(&orders.state) {
            OrderState { finish: true, .. } => return false,
            OrderState { pause: true, .. } => {}
            _ => return true,
        }
        self.settle();
        self.device.pause();
        let mut state = lock(&orders.state);
        state.paused = true;
        orders.changed.notify_all();
        let rests = |state: &mut OrderState| state.pause && !state.finish;
        let mut state = orders.changed.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
        state.paused = false;
        let goes_on = !state.finish;
        drop(state);
        self.device.resume();
        goes_on
    }

    /// Gives the device another size, if it is to have one. The driver hears of it once all of it can be read.
    fn resize(&mut self) {
        let Some(size) = lock(&self.orders.state).resize.take() else { return };
        let resized = self.device.resize(size).map(|config| {
            self.space.change(config);
            self.queues.tell_of_change();
        });
        lock(&self.orders.state).resized = Some(resized);
        self.orders.changed.notify_all();
    }

    /// Gives queue `index` a turn, if it was notified since the last one. True if it was.
    pub fn serve(&mut self, index: usize) -> bool {
        let Some(notify) = self.notify.get(index).filter(|_| self.queues.has(index)) else { return false };
        match notify.read() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                tracing::warn!(%error, "virtio notification");
                return false;
            }
        }
        let next = self.queues.turn(index, &mut *self.device, &mut self.request);
        if self.device.has_new_config() {
            self.space.change(self.device.config());
            self.queues.tell_of_change();
        }
        // Another turn comes after everybody else's.
        match next {
            Next::WhenNotified => {}
            Next::After(Duration::ZERO) => drop(notify.write(1)),
            Next::After(wait) => {
                if let Some(due) = self.due.get_mut(index) {
                    *due = Instant::now().checked_add(wait);
                }
            }
        }
        true
    }
}

/// A worker whose thread runs. Dropping it ends the thread, and what it has of its device, or leaves behind one which waits for a
/// request that may never be over.
pub struct Running {
    name: String,
    orders: Arc<Orders>,
    /// There until it is waited for.
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Running {
    /// Asks for rest. [`await_pause`](Self::await_pause) says when it is there, so that many workers can be asked at once.
    pub fn ask_to_pause(&self) {
        lock(&self.orders.state).pause = true;
        // A full counter has woken it already.
        let _ = self.orders.wake.write(1);
    }

    /// Waits until the worker rests, at most for `limit`: a disk may hang. If it does not, it must be resumed all the same.
    pub fn await_pause(&self, limit: Duration) -> Result<(), WorkerError> {
        let state = lock(&self.orders.state);
        let waited = self.orders.changed.wait_timeout_while(state, limit, |state| !state.paused);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.paused { Ok(()) } else { Err(WorkerError::Busy { name: self.name.clone(), limit }) }
    }

    /// Lets the worker go on.
    pub fn resume(&self) {
        lock(&self.orders.state).pause = false;
        self.orders.changed.notify_all();
    }

    /// Has the device have `size` bytes from now on, and waits until it does, at most for `limit`: a disk may hang.
    pub fn resize(&self, size: u64, limit: Duration) -> Result<(), ResizeError> {
        let mut state = lock(&self.orders.state);
        state.resize = Some(size);
        // Of one that was late, and nobody has waited for.
        state.resized = None;
        let _ = self.orders.wake.write(1);
        let waited = self.orders.changed.wait_timeout_while(state, limit, |state| state.resized.is_none());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.resize = None;
        state.resized.take().unwrap_or(Err(ResizeError::Late(limit)))
    }

    /// Whether its thread has this name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// Asks for the end, which dropping it waits for, so that many workers can be asked at once.
    pub fn ask_to_finish(&self) {
        lock(&self.orders.state).finish = true;
        self.orders.changed.notify_all();
        let _ = self.orders.wake.write(1);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_finish();
        let state = lock(&self.orders.state);
        let waited = self.orders.changed.wait_timeout_while(state, FINISH, |state| !state.finished);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.finished {
            tracing::info!(name = self.name, "a request is not over: its device is left behind");
            return;
        }
        drop(state);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(name = self.name, "a worker's thread has panicked");
        }
    }
}
