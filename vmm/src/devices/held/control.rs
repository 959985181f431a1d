// SPDX-License-Identifier: Apache-2.0
//! What the registers of the memory device, its thread and the owner of the VM share.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use vmm_sys_util::eventfd::EventFd;

use super::state::{Asked, Ended, Job, State};
use crate::complaints::Complaints;
use crate::devices::bus::lock;
use crate::devices::running::{Orders, Running, WorkerError};
use crate::observe::devices::DeviceCounters;

/// Stack of the thread: it makes a few calls.
const STACK: usize = 64 << 10;

/// Whoever has memory for the guest: the thread calls it, with sizes in bytes from the start of held memory.
pub trait Provider: Send {
    /// Has memory for the first `to` bytes: the guest can use it. They are more than before, or it could not take them back.
    fn grow(&mut self, to: u64) -> io::Result<()>;
    /// Has memory for the first `to` bytes only, fewer than before. If it cannot, it has as much as before.
    fn shrink(&mut self, to: u64) -> io::Result<()>;
}

/// What the owner of the VM is told.
#[derive(Debug)]
pub enum Report {
    /// A request is over, and the host has what the guest has given back.
    Ended(Ended),
    /// The host has no memory for so many bytes.
    Host {
        /// What was wanted.
        wanted: u64,
        /// Why.
        source: io::Error,
    },
}

/// What is told to.
type Tell = Box<dyn Fn(Report) + Send>;

/// How far the guest is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes of held memory that it owns.
    pub owned: u64,
    /// Whether its driver has ever used the device.
    pub driver: bool,
    /// When it last came to own more or less, or to know a request, or the host had some of its memory again.
    pub since: Instant,
}

/// The device as its registers, its thread and the owner of the VM share it.
pub struct HeldControl {
    pub(super) inner: Mutex<Inner>,
    pub(super) orders: Arc<Orders>,
    irq: EventFd,
    /// Writes that made no sense.
    nonsense: AtomicU64,
}

/// What changes of it.
pub(super) struct Inner {
    pub(super) state: State,
    pub(super) driver: bool,
    pub(super) since: Instant,
    complaints: Complaints,
    tell: Option<Tell>,
}

impl fmt::Debug for HeldControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldControl")
    }
}

impl HeldControl {
    /// A device of `max` bytes of held memory, `there` of which are there already; it interrupts by `irq`.
    pub fn new(max: u64, there: u64, irq: EventFd) -> io::Result<Arc<Self>> {
        let state = State::new(max, there);
        let (since, complaints) = (Instant::now(), Complaints::default());
        let inner = Mutex::new(Inner { state, driver: false, since, complaints, tell: None });
        Ok(Arc::new(Self { inner, orders: Arc::new(Orders::new()?), irq, nonsense: AtomicU64::new(0) }))
    }

    /// Who is told from now on what becomes of requests.
    pub fn tell(&self, tell: impl Fn(Report) + Send + 'static) {
        lock(&self.inner).tell = Some(Box::new(tell));
    }

    /// Asks the guest to own `bytes`, a whole number of sections, at most all. What becomes of it is told.
    pub fn ask(&self, bytes: u64) -> Asked {
        let asked = {
            let mut inner = lock(&self.inner);
            inner.since = Instant::now();
            inner.state.ask(bytes)
        };
        self.orders.has_more();
        asked
    }

    /// The same for a guest that goes on from what was saved: what it had begun then, it does first.
    pub fn ask_next(&self, bytes: u64) {
        lock(&self.inner).state.ask_next(bytes);
        self.orders.has_more();
    }

    /// How far the guest is.
    pub fn progress(&self) -> Progress {
        let inner = lock(&self.inner);
        Progress { owned: inner.state.owned, driver: inner.driver, since: inner.since }
    }

    /// It does not work before it is told to go on.
    pub fn rest_first(&self) {
        self.orders.ask_to_pause();
    }

    /// Starts the thread, which asks `provider` for memory. The first that it does is `begin`; it ends if there is nothing to keep.
    pub fn serve<G>(
        self: &Arc<Self>,
        name: String,
        mut provider: Box<dyn Provider>,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Running, WorkerError> {
        let control = Arc::clone(self);
        Running::start(name, STACK, &self.orders, begin, move |orders| {
            while let Some(job) = orders.next(|| lock(&control.inner).state.job()) {
                control.work(job, provider.as_mut());
            }
        })
    }

    fn work(&self, job: Job, provider: &mut dyn Provider) {
        let begun = Instant::now();
        let result = match job {
            Job::Grow(to) => provider.grow(to),
            Job::Shrink(to) => provider.shrink(to),
            Job::Announce(_) => Ok(()),
        };
        if let (Job::Shrink(to), Err(source)) = (job, &result) {
            // That it stays for longer is no harm to the guest.
            tracing::warn!(%source, bytes = to, "memory that the guest has given back stays with this process");
        }
        let mut inner = lock(&self.inner);
        inner.since = Instant::now();
        match result {
            Ok(()) => {
                if let Job::Shrink(_) = job {
                    inner.state.pace(begun.elapsed());
                }
                if inner.state.done(job) {
                    self.interrupt();
                }
            }
            Err(source) => {
                if let Some(wanted) = inner.state.failed(job) {
                    inner.report(Report::Host { wanted, source });
                }
            }
        }
        inner.report_end();
    }

    pub(super) fn interrupt(&self) {
        // A full counter has interrupted already.
        let _ = self.irq.write(1);
    }

    /// A write of the guest's that made no sense. How many there were, if it is time to tell: behind the lock, as whoever reads
    /// what is told may be slow.
    pub(super) fn complaint(&self, inner: &mut Inner) -> Option<u64> {
        self.nonsense.fetch_add(1, Ordering::Relaxed);
        inner.complaints.count()
    }
}

impl Inner {
    fn report(&self, report: Report) {
        if let Some(tell) = &self.tell {
            tell(report);
        }
    }

    /// Tells how a request has ended, if there is one of which that can be told now.
    pub(super) fn report_end(&mut self) {
        if let Some(ended) = self.state.take_ended() {
            self.report(Report::Ended(ended));
        }
    }
}

impl DeviceCounters for HeldControl {
    fn values(&self) -> BTreeMap<&'static str, u64> {
        let State { max, wanted, owned, request, .. } = lock(&self.inner).state;
        let nonsense = self.nonsense.load(Ordering::Relaxed);
        [
            ("max_bytes", max),
            ("wanted_bytes", wanted),
            ("owned_bytes", owned),
            ("requests", request.into()),
            ("errors", nonsense),
        ]
        .into()
    }
}
