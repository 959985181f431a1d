// SPDX-License-Identifier: Apache-2.0
//! Stopping a sweep from another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::process::Signal;

use crate::backend::SessionControl;

/// Asked for once, a stop ends the boot in flight and keeps the sweep from beginning another.
#[derive(Debug, Default)]
pub struct Stop {
    asked: AtomicBool,
    session: Mutex<Option<SessionControl>>,
}

impl Stop {
    /// Asks for it, on behalf of `signal`. Asked again, whatever runs is killed.
    pub fn ask(&self, signal: i32) {
        let again = self.asked.swap(true, Ordering::SeqCst);
        self.end(if again { Signal::KILL.as_raw() } else { signal });
    }

    fn end(&self, signal: i32) {
        if let Some(session) = &*self.session.lock().unwrap_or_else(PoisonError::into_inner) {
            session.end(signal);
        }
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// From here on `session` is what a stop ends; one that came before ends it at once.
    pub(crate) fn guard(&self, session: SessionControl, signal: i32) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        if self.is_asked() {
            self.end(signal);
        }
    }

    /// The session is over.
    pub(crate) fn release(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
