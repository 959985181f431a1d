// SPDX-License-Identifier: Apache-2.0
//! The way from a VM's own threads to its owner, whoever that is: they can end it.

use std::fmt;
use std::sync::Arc;
use std::thread;

use crate::ending::Ending;

/// Ends one VM.
#[derive(Clone)]
pub struct Ender(Arc<dyn Fn(Ending) + Send + Sync>);

impl Ender {
    /// One that tells its owner by `tell`.
    #[must_use]
    pub fn new(tell: impl Fn(Ending) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Ends the VM. The first ending counts; one that is over hears no more.
    pub fn end(&self, ending: Ending) {
        (self.0)(ending);
    }
}

impl fmt::Debug for Ender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ender")
    }
}

/// Reports an ending if the thread that has it panics: without that thread the VM would be for ever what it is then. Of use only
/// where panics unwind; release builds abort.
#[derive(Debug)]
pub struct PanicGuard {
    vm: Ender,
    of: String,
}

impl PanicGuard {
    /// A guard for the thread that serves `of`.
    #[must_use]
    pub fn new(vm: &Ender, of: String) -> Self {
        Self { vm: vm.clone(), of }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.vm.end(Ending::Internal { what: format!("the thread of {} has panicked", self.of) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_panics_is_the_end_and_one_that_returns_is_not() {
        let (sender, endings) = channel();
        let vm = Ender::new(move |ending| drop(sender.send(ending)));
        for (of, panics) in [("disk", false), ("vCPU 7", true)] {
            let guard = PanicGuard::new(&vm, of.to_owned());
            let thread = thread::spawn(move || {
                let _guard = guard;
                assert!(!panics, "on purpose");
            });
            assert_eq!(thread.join().is_err(), panics);
        }
        let said: Vec<_> = endings.try_iter().collect();
        assert_eq!(said, [Ending::Internal { what: "the thread of vCPU 7 has panicked".to_owned() }]);
    }
}
