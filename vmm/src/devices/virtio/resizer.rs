// SPDX-License-Identifier: Apache-2.0
//! The way to give a device another size while its thread runs, which does it: nobody else touches a device.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{ResizeError, VirtioDevice};
use crate::devices::bus::lock;
use crate::devices::running::Orders;

/// Asks a device's thread for another size.
#[derive(Debug)]
pub struct Resizer {
    /// By which the thread is woken.
    orders: Arc<Orders>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often it was asked: an answer that is late belongs to nobody.
    number: u64,
    /// The size that the device is to have,
    asked: Option<u64>,
    /// and what has become of that.
    answered: Option<Result<(), ResizeError>>,
}

impl Resizer {
    pub(super) fn new(orders: Arc<Orders>) -> Self {
        Self { orders, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Has the device have `size` bytes from now on, and waits until it does, at most for `limit`: a disk may hang.
    pub fn resize(&self, size: u64, limit: Duration) -> Result<(), ResizeError> {
        {
            let mut state = lock(&self.state);
            *state = State { number: state.number.wrapping_add(1), asked: Some(size), answered: None };
        }
        self.orders.remind();
        let waited = self.changed.wait_timeout_while(lock(&self.state), limit, |state| state.answered.is_none());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.asked = None;
        state.answered.take().unwrap_or(Err(ResizeError::Late(limit)))
    }

    /// The thread's: gives `device` another size, if it is to have one.
    pub(super) fn obey(&self, device: &mut dyn VirtioDevice) {
        let (number, asked) = {
            let mut state = lock(&self.state);
            (state.number, state.asked.take())
        };
        let Some(size) = asked else { return };
        let answer = device.resize(size);
        let mut state = lock(&self.state);
        if state.number == number {
            state.answered = Some(answer);
            self.changed.notify_all();
        }
    }
}
