// SPDX-License-Identifier: Apache-2.0
//! How a thread of a VM begins: in its jail, with somebody who tells the VM if it panics.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::chain::chain;
use crate::devices::bus::lock;
use crate::ender::{Ender, PanicGuard};
use crate::ending::Ending;
use crate::sandbox::{Jail, Kind};

/// What the threads of a VM have in common.
#[derive(Debug)]
pub struct Control {
    pub(super) ender: Ender,
    pub(super) jail: Jail,
    pub(super) once: bool,
    pub(super) entries: Arc<Entries>,
}

impl Control {
    /// For a VM whose threads report its end to `ender` and enter `jail` before the guest runs. With `once`, the thread that boots
    /// it boots no other one, and enters last.
    #[must_use]
    pub fn new(ender: Ender, jail: Jail, once: bool) -> Self {
        Self { ender, jail, once, entries: Arc::default() }
    }
}
/// Threads that are still to begin.
#[derive(Debug, Default)]
pub(super) struct Entries {
    outside: Mutex<usize>,
    changed: Condvar,
}

impl Entries {
    /// Waits until every thread that has been given an [`Entry`] is in its jail, or has ended.
    pub(super) fn wait(&self) {
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
    pub fn new(control: &Control, kind: Kind, name: String) -> Self {
        *lock(&control.entries.outside) += 1;
        let Control { jail, ender, entries, .. } = control;
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
