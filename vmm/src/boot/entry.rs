// SPDX-License-Identifier: Apache-2.0
//! How a thread of a VM begins: in its jail, with somebody who tells the VM if it panics.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::chain::chain;
use crate::devices::bus::lock;
use crate::ender::{Ender, PanicGuard};
use crate::ending::Ending;
use crate::listener::Bound;
use crate::sandbox::{Jail, JailError, Kind};
use crate::timeline::Timeline;

/// What the threads of a VM have in common.
#[derive(Debug)]
pub struct Context {
    pub(super) ender: Ender,
    pub(super) jail: Jail,
    once: bool,
    /// Where the phases of the boot are marked.
    pub(super) timeline: Arc<Timeline>,
    entries: Arc<Entries>,
}

impl Context {
    /// For a VM whose threads report its end to `ender` and enter `jail` before the guest runs. With `once`, the thread that boots
    /// it boots no other one, and enters last.
    #[must_use]
    pub fn new(ender: Ender, jail: Jail, once: bool, timeline: Arc<Timeline>) -> Self {
        Self { ender, jail, once, timeline, entries: Arc::default() }
    }

    /// Waits until every thread is in its jail. The calling one is the last, unless it boots others: then the guest may run. Those
    /// `sockets` are still to be removed.
    pub(super) fn close(&self, sockets: &[Bound]) -> Result<(), JailError> {
        self.entries.wait();
        match (self.once, sockets) {
            (false, _) => Ok(()),
            (true, []) => self.jail.enter(Kind::Vmm),
            (true, _) => self.jail.enter(Kind::VmmWithSocket),
        }
    }
}

/// Threads that are still to begin.
#[derive(Debug, Default)]
struct Entries {
    outside: Mutex<usize>,
    changed: Condvar,
}

impl Entries {
    /// Waits until every thread that has been given an [`Entry`] is in its jail, or has ended.
    fn wait(&self) {
        let outside = self.changed.wait_while(lock(&self.outside), |outside| *outside > 0);
        drop(outside.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What a thread passes before it does anything else.
#[derive(Debug)]
pub struct Entry {
    jail: Jail,
    kind: Kind,
    ender: Ender,
    name: String,
    entries: Arc<Entries>,
}

impl Entry {
    /// For a thread of `kind`, which serves what is called `name`.
    #[must_use]
    pub fn new(context: &Context, kind: Kind, name: String) -> Self {
        *lock(&context.entries.outside) += 1;
        let Context { jail, ender, entries, .. } = context;
        Self { jail: jail.clone(), kind, ender: ender.clone(), name, entries: Arc::clone(entries) }
    }

    /// The calling thread is in its jail, and keeps what is returned as long as it runs. Without a jail, the VM is over, and
    /// the thread must end.
    #[must_use]
    pub fn pass(self) -> Option<PanicGuard> {
        let guard = PanicGuard::new(&self.ender, self.name.clone());
        match self.jail.enter(self.kind) {
            Ok(()) => Some(guard),
            Err(error) => {
                let what = format!("the thread of {}: {}", self.name, chain(&error));
                self.ender.end(Ending::Internal { what });
                None
            }
        }
    }
}

impl Drop for Entry {
    /// Passed, or never to be.
    fn drop(&mut self) {
        *lock(&self.entries.outside) -= 1;
        self.entries.changed.notify_all();
    }
}
