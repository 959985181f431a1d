// SPDX-License-Identifier: Apache-2.0
//! Reads files for firmware, in a thread of its own: the vCPU that asks goes on, and looks at the request's control field until
//! it says that the transfer is over, as the interface has it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::dma::{self, Fetch};
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
    /// The thread's; it ends when this is gone.
    jobs: Option<Sender<Job>>,
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
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send((fetch, address)).is_ok());
        if !sent {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
        sent
    }

    /// Starts the thread. The first that it does is `begin`, whose result it keeps as long as it runs; without one it ends, and
    /// every fetch fails.
    pub(super) fn start<G>(
        &mut self,
        memory: &GuestMemory,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> io::Result<()> {
        let (sender, jobs) = channel();
        let (memory, pending) = (memory.clone(), Arc::clone(&self.pending));
        let builder = thread::Builder::new().name("fw_cfg".to_owned()).stack_size(STACK);
        builder.spawn(move || {
            let Some(_kept) = begin() else { return };
            run(&jobs, &memory, &pending);
        })?;
        self.jobs = Some(sender);
        Ok(())
    }

    /// Whether a fetch is in progress.
    pub(super) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }
}

fn run(jobs: &Receiver<Job>, memory: &GuestMemory, pending: &AtomicUsize) {
    for (fetch, address) in jobs {
        let result = fetch.run(memory);
        if let Err(error) = &result {
            tracing::warn!(%error, "firmware gets no answer from the host: a file cannot be read");
        }
        dma::answer(memory, address, result.is_ok());
        pending.fetch_sub(1, Ordering::AcqRel);
    }
}
