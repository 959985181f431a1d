// SPDX-License-Identifier: Apache-2.0
//! Reads files for firmware, in a thread of its own: the vCPU that asks goes on, and looks at the request's control field until
//! it says that the transfer is over, as the interface has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::dma::{self, Fetch};
use crate::complaints::Complaints;
use crate::devices::running::{Order, Orders, Running, WorkerError};
use crate::memory::GuestMemory;

/// Stack of the thread; it copies by the page.
const STACK: usize = 128 << 10;

/// One in progress, and one more: a driver that has just got its answer may ask for the next before the thread is back.
const PENDING_MAX: usize = 2;

/// A fetch, and where its request is.
type Job = (Fetch, u64);

/// Does one fetch after another.
#[derive(Debug, Default)]
pub(super) struct Fetcher {
    /// To the thread, if there is one.
    thread: Option<(Sender<Job>, Arc<Orders>)>,
    pending: Arc<AtomicUsize>,
}

impl Fetcher {
    /// Begins `fetch` for the request at `address`, which is answered when it is over. False if it cannot begin: others are
    /// in progress, which a driver would wait for, or there is no thread.
    pub(super) fn begin(&self, fetch: Fetch, address: u64) -> bool {
        if self.pending.fetch_add(1, Ordering::AcqRel) >= PENDING_MAX {
            self.pending.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        let sent = self.thread.as_ref().is_some_and(|(jobs, orders)| {
            let sent = jobs.send((fetch, address)).is_ok();
            orders.has_more();
            sent
        });
        if !sent {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
        sent
    }

    /// Starts the thread, which does as it is told until the result is dropped. The first that it does is `begin`, whose
    /// result it keeps as long as it runs; without one it ends, and every fetch fails.
    pub(super) fn start<G>(
        &mut self,
        memory: &GuestMemory,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Running, WorkerError> {
        let name = || "fw_cfg".to_owned();
        let (sender, jobs) = channel();
        let orders = Orders::new().map_err(|source| WorkerError::Watch { name: name(), source })?;
        let (memory, pending, orders) = (memory.clone(), Arc::clone(&self.pending), Arc::new(orders));
        let work = move |orders: &Orders| run(&jobs, &memory, &pending, orders);
        let running = Running::start(name(), STACK, &orders, begin, work)?;
        self.thread = Some((sender, orders));
        Ok(running)
    }

    /// Whether a fetch is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }
}

/// Rests between two pieces of a file and between a file and its answer; what is left when it is to end is not answered.
fn run(jobs: &Receiver<Job>, memory: &GuestMemory, pending: &AtomicUsize, orders: &Orders) {
    let mut complaints = Complaints::default();
    while let Some((mut fetch, address)) = orders.next(|| jobs.try_recv().ok()) {
        let result = loop {
            match fetch.step(memory) {
                Ok(over) if !may_go_on(orders) => {
                    tracing::debug!(over, "firmware's transfer ends with its VM");
                    return;
                }
                Ok(false) => {}
                over => break over.map(drop),
            }
        };
        if let Err(error) = &result
            && let Some(count) = complaints.count()
        {
            tracing::warn!(%error, "firmware gets no answer from the host {count} time(s): a file cannot be read");
        }
        dma::answer(memory, address, result.is_ok());
        pending.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Rests if it is to. False when it is to end.
fn may_go_on(orders: &Orders) -> bool {
    match orders.heard() {
        Order::Work => true,
        Order::Rest => orders.rest(),
        Order::Finish => false,
    }
}
