// SPDX-License-Identifier: Apache-2.0
//! What a process that a signal ends at once, as while a VM is being started, must not leave behind: sockets, which others would
//! wait at.

use std::sync::{Arc, Mutex, MutexGuard};
use std::{fmt, mem};

use crate::devices::bus::lock;

/// Removes one thing. It is still there then, or was removed already.
pub type Remover = Box<dyn Fn() + Send>;

/// All that is to go.
#[derive(Clone, Default)]
pub struct Leave(Arc<Mutex<Things>>);

/// By whose they are.
#[derive(Default)]
pub struct Things {
    /// The server's.
    pub server: Option<Remover>,
    /// Those of the VM, from when they are made until it ends.
    pub vm: Vec<Remover>,
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leave")
    }
}

impl Leave {
    /// For whoever makes such a thing, and holds this meanwhile: a signal waits until it is known.
    pub fn making(&self) -> MutexGuard<'_, Things> {
        lock(&self.0)
    }

    /// Removes all of them, and from now on none is made: for a process that is about to end.
    pub fn close(&self) {
        let things = self.making();
        things.remove();
        mem::forget(things);
    }
}

impl Things {
    fn remove(&self) {
        self.server.iter().chain(&self.vm).for_each(|remove| remove());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn all_that_is_there_goes() {
        let leave = Leave::default();
        leave.making().remove();
        let gone = Arc::new(AtomicU32::new(0));
        let thing = |number: u32| -> Option<Remover> {
            let gone = Arc::clone(&gone);
            Some(Box::new(move || {
                gone.fetch_or(number, Ordering::Relaxed);
            }))
        };
        leave.making().server = thing(1);
        leave.making().vm.extend(thing(2));
        leave.making().vm.clear();
        leave.clone().making().remove();
        assert_eq!(gone.swap(0, Ordering::Relaxed), 1, "that of a VM that has ended is no longer known");
        leave.making().vm.extend([thing(2), thing(4)].into_iter().flatten());
        leave.making().remove();
        assert_eq!(gone.load(Ordering::Relaxed), 7);
        leave.close();
        assert!(leave.0.try_lock().is_err(), "nothing is made any more");
    }
}
