// SPDX-License-Identifier: Apache-2.0
//! The way to a VM for everybody who has something to say to it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::VmmError;
use crate::ending::Ending;

/// What is said to a VM.
#[derive(Debug)]
pub(super) enum Request {
    /// It is over.
    End(Ending),
    /// It is to be over at that time, unless it is before.
    EndAt(Instant, Ending),
    /// It is to rest; the answer goes back.
    Pause(Sender<Result<(), VmmError>>),
    /// It is to go on; the answer goes back.
    Resume(Sender<Result<(), VmmError>>),
}

/// What a VM has been told and has not heard yet.
#[derive(Debug)]
pub struct Requests(pub(super) Receiver<Request>);

impl Requests {
    /// The next thing that is said, until `deadline` if there is one.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Result<Request, RecvTimeoutError> {
        match deadline {
            Some(deadline) => self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => self.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }
}

/// A way to a VM, for any thread.
#[derive(Debug, Clone)]
pub struct Handle(Sender<Request>);

/// A way to a VM, and where that VM is to listen.
#[must_use]
pub fn channel_to_vm() -> (Handle, Requests) {
    let (sender, receiver) = channel();
    (Handle(sender), Requests(receiver))
}

impl Handle {
    /// Ends the VM. The first ending counts; one that is over hears no more.
    pub fn end(&self, ending: Ending) {
        let _ = self.0.send(Request::End(ending));
    }

    /// Ends the VM when `time` has passed. The first such ending counts.
    pub fn end_after(&self, time: Duration, ending: Ending) {
        let _ = self.0.send(Request::EndAt(Instant::now() + time, ending));
    }

    /// Brings the VM to rest: when this returns, no vCPU runs and no device works. It goes on unless that can be said of all.
    pub fn pause(&self) -> Result<(), VmmError> {
        self.ask(Request::Pause)
    }

    /// Lets the VM go on.
    pub fn resume(&self) -> Result<(), VmmError> {
        self.ask(Request::Resume)
    }

    fn ask(&self, request: impl FnOnce(Sender<Result<(), VmmError>>) -> Request) -> Result<(), VmmError> {
        let (sender, answer) = channel();
        self.0.send(request(sender)).map_err(|_| VmmError::Gone)?;
        answer.recv().map_err(|_| VmmError::Gone)?
    }
}

/// Reports an ending if the thread that has it panics: without that thread the VM would be for ever what it is then. Of use only
/// where panics unwind; release builds abort.
#[derive(Debug)]
pub struct PanicGuard {
    vmm: Handle,
    of: String,
}

impl PanicGuard {
    /// A guard for the thread that serves `of`.
    #[must_use]
    pub fn new(vmm: &Handle, of: String) -> Self {
        Self { vmm: vmm.clone(), of }
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            self.vmm.end(Ending::Internal { what: format!("the thread of {} has panicked", self.of) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_the_end_and_one_that_returns_is_not() {
        let (vmm, requests) = channel_to_vm();
        for (of, panics) in [("disk", false), ("vCPU 7", true)] {
            let guard = PanicGuard::new(&vmm, of.to_owned());
            let thread = thread::spawn(move || {
                let _guard = guard;
                assert!(!panics, "on purpose");
            });
            assert_eq!(thread.join().is_err(), panics);
        }
        let Ok(Request::End(ending)) = requests.0.try_recv() else { panic!("nothing was said") };
        assert_eq!(ending, Ending::Internal { what: "the thread of vCPU 7 has panicked".to_owned() });
        assert!(requests.0.try_recv().is_err());
    }

    #[test]
    fn a_vm_that_is_gone_says_so() {
        let (vmm, requests) = channel_to_vm();
        drop(requests);
        vmm.end(Ending::PowerOff);
        assert_eq!(vmm.pause().unwrap_err().to_string(), "the VM is over");
    }
}
