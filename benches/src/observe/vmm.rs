// SPDX-License-Identifier: Apache-2.0
//! The process of a VMM, which never outlives whoever watches it.

use std::process::Child;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::Pid;

/// Set by a signal: the VMM is ended at once.
pub type Interrupted = AtomicBool;

/// How often it is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Ended when dropped.
#[derive(Debug)]
pub(crate) struct Vmm(pub(crate) Child);

impl Drop for Vmm {
    fn drop(&mut self) {
        // Of one that has ended already there is only its status to take.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Vmm {
    pub(super) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.0.id()).ok()?)
    }
}
