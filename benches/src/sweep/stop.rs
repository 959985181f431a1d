// SPDX-License-Identifier: Apache-2.0
//! Stopping a sweep from another thread.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::backend::SessionControl;

/// Signals that come within this time are one wish: a terminal's, and what hands it on.
const ONE: Duration = Duration::from_secs(1);

/// Asked for once, a stop ends the boot in flight and keeps the sweep from beginning another.
#[derive(Debug, Default)]
pub struct Stop {
    asked: OnceLock<Instant>,
    session: Mutex<Option<SessionControl>>,
}

impl Stop {
    /// Asks for it, on behalf of `signal`. Asked again after [`ONE`], whatever runs is killed.
    pub fn ask(&self, signal: i32) {
        match self.asked.get() {
            None => {
                let _ = self.asked.set(Instant::now());
                self.end(signal);
            }
            Some(first) if first.elapsed() > ONE => self.end(Signal::KILL.as_raw()),
            Some(_) => {}
        }
    }

    fn end(&self, signal: i32) {
        if let Some(session) = &*self.session.lock().unwrap_or_else(PoisonError::into_inner) {
            session.end(signal);
        }
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.get().is_some()
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
