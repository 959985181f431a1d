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
        let is_begun = state.asked.take().is_none();
        let late = if is_begun { ResizeError::Late { size, limit } } else { ResizeError::NotBegun { size, limit } };
        state.answered.take().unwrap_or(Err(late))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;
    use crate::devices::virtio::Request;
    use crate::memory::GuestMemory;

    /// A disk that hangs until it is told to go on. Its size is what it was last given.
    struct Hung(Receiver<()>, u64);

    impl VirtioDevice for Hung {
        fn device_type(&self) -> u32 {
            2
        }

        fn queue_sizes(&self) -> &[u16] {
            &[1]
        }

        fn handle(&mut self, _: usize, _: &GuestMemory, _: &Request) -> u32 {
            0
        }

        fn resize(&mut self, size: u64) -> Result<(), ResizeError> {
            self.1 = size;
            let _ = self.0.recv();
            Ok(())
        }
    }

    #[test]
    fn what_is_late_says_whether_it_may_still_come() {
        const LIMIT: Duration = Duration::from_millis(1);
        let resizer = Resizer::new(Arc::new(Orders::new().unwrap()));
        let (go_on, hangs) = channel();
        let mut disk = Hung(hangs, 0);
        thread::scope(|scope| {
            let size = scope.spawn(|| {
                while disk.1 == 0 {
                    resizer.obey(&mut disk);
                }
                resizer.obey(&mut disk);
                disk.1
            });
            let late = |size| resizer.resize(size, LIMIT).unwrap_err().to_string();
            let may_come = "desired_size=512: the device has not done it within 0 s, and still may";
            while late(512) != may_come {}
            assert_eq!(late(1024), "desired_size=1024: the device has not begun it within 0 s, and will not");
            drop(go_on);
            assert_eq!(size.join().unwrap(), 512);
        });
    }
}
