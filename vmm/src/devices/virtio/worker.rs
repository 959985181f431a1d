// SPDX-License-Identifier: Apache-2.0
//! A device's own thread: it waits for notifications, and gives the queues their turns.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use super::queues::{Next, Queues};
use super::resizer::Resizer;
use super::{Request, VirtioDevice};
use crate::devices::running::{Order, Orders, Running, WorkerError};
use crate::sandbox::Kind;

/// Stack of a worker: a request's buffers are guest memory or on the heap.
const STACK: usize = 128 << 10;
/// Events taken at once; a device has few queues.
const EVENTS: usize = 8;
/// Names the worker's own event among those of queues.
const ORDERS: u64 = u64::MAX;
/// Marks a queue's number: not the driver has something for it, but one of the device's sources.
const SOURCE: u64 = 1 << 63;

/// A device, or one of its lanes, with its queues, and no thread yet.
pub struct VirtioWorker {
    device: Box<dyn VirtioDevice>,
    queues: Arc<Queues>,
    /// One for each queue; the guest's notifications arrive here, from KVM (ioeventfd) or from the transport.
    notify: Arc<[EventFd]>,
    orders: Arc<Orders>,
    resizer: Arc<Resizer>,
    /// Its buffers are used again for each request.
    request: Request,
    /// By queue, when it is to be looked at again, whether the driver notifies or not.
    due: Vec<Option<Instant>>,
    /// What a worker that is about to rest waits for: orders, and its device's sources. Of a device that begins requests these tell
    /// that some are over, and nothing else.
    ends: Epoll,
}

impl fmt::Debug for VirtioWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtioWorker").field("notify", &self.notify).finish_non_exhaustive()
    }
}

impl VirtioWorker {
    pub(super) fn new(device: Box<dyn VirtioDevice>, queues: Arc<Queues>, notify: Arc<[EventFd]>) -> io::Result<Self> {
        let orders = Arc::new(Orders::new()?);
        let resizer = Arc::new(Resizer::new(Arc::clone(&orders)));
        let due = vec![None; notify.len()];
        let ends = Epoll::new()?;
        let sources = device.sources().into_iter().filter(|source| !source.writable);
        let watched = sources.map(|source| (source.descriptor, SOURCE)).chain([(orders.event().as_raw_fd(), ORDERS)]);
        for (descriptor, data) in watched {
            // What cannot be watched is refused, by its name, when the thread is to start.
            let _ = ends.ctl(ControlOperation::Add, descriptor, EpollEvent::new(EventSet::IN, data));
        }
        Ok(Self { device, queues, notify, orders, resizer, request: Request::default(), due, ends })
    }

    /// By which its device gets another size once it has a thread.
    #[must_use]
    pub fn resizer(&self) -> Arc<Resizer> {
        Arc::clone(&self.resizer)
    }

    /// What its thread may do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.device.thread()
    }

    /// It is to rest as soon as it has a thread, and before it does anything.
    pub fn rest_first(&self) {
        self.orders.ask_to_pause();
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
        Running::start(name, STACK, &orders, begin, move |_| self.run(&epoll))
    }

    /// An epoll instance that knows every queue. A queue that it does not know would never be served.
    fn watch(&self) -> io::Result<Epoll> {
        let epoll = Epoll::new()?;
        let queues = (0..).zip(self.notify.iter()).filter(|(index, _)| self.queues.has(*index));
        let events = queues.map(|(index, event)| (index as u64, event)).chain([(ORDERS, self.orders.event())]);
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
        // One that is to rest before it works does not look at what there is.
        if !self.obey() {
            return;
        }
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
                    // As if it had been notified.
                    source if source & SOURCE != 0 => {
                        let _ = usize::try_from(source & !SOURCE).map(|index| self.turn(index));
                    }
                    queue => drop(usize::try_from(queue).map(|index| self.serve(index))),
                }
            }
            self.wake_what_is_due();
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

    /// Waits for what is in flight. False if there is an order before that is over.
    pub(super) fn settle(&mut self) -> bool {
        let mut events = [EpollEvent::default(); EVENTS];
        while !self.queues.settles(&mut *self.device) {
            let again = self.device.retry().map_or(-1, |wait| i32::try_from(wait.as_millis()).unwrap_or(i32::MAX));
            // An error can only be a signal.
            let count = self.ends.wait(again, &mut events).unwrap_or(0);
            if events.iter().take(count).any(|event| event.data() == ORDERS) {
                return false;
            }
        }
        true
    }

    /// Rests while a pause is asked for, with nothing in flight. False when it is to end.
    fn obey(&mut self) -> bool {
        loop {
            let order = self.orders.heard();
            self.resizer.obey(&mut *self.device);
            match order {
                Order::Work => return true,
                Order::Finish => return false,
                // Who asked may give up before a slow request is over: then the driver's other ones go on.
                Order::Rest if self.settle() => break,
                Order::Rest => self.look_again(),
            }
        }
        self.device.pause();
        self.queues.keep(&mut *self.device);
        let goes_on = self.orders.rest();
        self.device.resume();
        self.look_again();
        goes_on
    }

    /// A queue that the device had no room for is looked at when one of its requests is over, and not when the driver notifies. Those
    /// that were over as it settled have told nobody else.
    fn look_again(&self) {
        let queues = self.notify.iter().enumerate().filter(|(index, _)| self.queues.has(*index));
        // A full counter has a notification pending already.
        queues.for_each(|(_, notify)| drop(notify.write(1)));
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
        self.turn(index);
        true
    }

    /// Gives queue `index` a turn. Another one comes after everybody else's.
    fn turn(&mut self, index: usize) {
        let Some(notify) = self.notify.get(index).filter(|_| self.queues.has(index)) else { return };
        let next = self.queues.turn(index, &mut *self.device, &mut self.request);
        self.device.turned();
        match next {
            Next::WhenNotified => {}
            // A full counter has a notification pending already.
            Next::After(Duration::ZERO) => drop(notify.write(1)),
            Next::After(wait) => {
                if let Some(due) = self.due.get_mut(index) {
                    *due = Instant::now().checked_add(wait);
                }
            }
        }
    }
}
