// SPDX-License-Identifier: Apache-2.0
//! The ways to the owner of a VM: one for the VM's own threads, one for everybody else.

use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::call::{Answer, Call};
use super::error::VmmError;
use crate::ending::Ending;

/// What the owner is told.
#[derive(Debug)]
pub(super) enum Message {
    /// A VM is over.
    End {
        /// Which: one that came before it is over already.
        vm: u64,
        /// How.
        ending: Ending,
    },
    /// A signal asks for the end.
    Signal,
    /// Somebody wants something, and an answer.
    Call(Call, Reply),
}

/// What an answer is given to.
type Receive = Box<dyn FnOnce(Result<Answer, VmmError>) + Send>;

/// Where an answer goes. Dropped without one, it says that nobody is there.
pub(super) struct Reply(Option<Receive>);

impl Reply {
    pub(super) fn send(mut self, answer: Result<Answer, VmmError>) {
        if let Some(send) = self.0.take() {
            send(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(Err(VmmError::Gone));
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// For one VM's threads: they can end it.
#[derive(Debug, Clone)]
pub struct Handle {
    messages: Sender<Message>,
    vm: u64,
}

impl Handle {
    /// Ends the VM. The first ending counts; one that is over hears no more.
    pub fn end(&self, ending: Ending) {
        let _ = self.messages.send(Message::End { vm: self.vm, ending });
    }
}

/// For whoever wants something of the owner, from any thread.
#[derive(Debug, Clone)]
pub struct Caller(pub(super) Sender<Message>);

impl Caller {
    pub(super) fn handle(&self, vm: u64) -> Handle {
        Handle { messages: self.0.clone(), vm }
    }

    /// Asks for `call`. `reply` is called with the answer, once and in any case, by a thread that it must not hold up.
    pub fn call(&self, call: Call, reply: impl FnOnce(Result<Answer, VmmError>) + Send + 'static) {
        // Not taken, it is dropped, and that is an answer.
        let _ = self.0.send(Message::Call(call, Reply(Some(Box::new(reply)))));
    }

    /// The same, and waits for the answer.
    pub fn ask(&self, call: Call) -> Result<Answer, VmmError> {
        let (sender, answer) = channel();
        self.call(call, move |answer| drop(sender.send(answer)));
        answer.recv().map_err(|_| VmmError::Gone)?
    }

    /// Says that a signal asks for the end.
    pub fn signal(&self) {
        let _ = self.0.send(Message::Signal);
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
        let (sender, messages) = channel();
        let vmm = Caller(sender).handle(7);
        for (of, panics) in [("disk", false), ("vCPU 7", true)] {
            let guard = PanicGuard::new(&vmm, of.to_owned());
            let thread = thread::spawn(move || {
                let _guard = guard;
                assert!(!panics, "on purpose");
            });
            assert_eq!(thread.join().is_err(), panics);
        }
        let Ok(Message::End { vm: 7, ending }) = messages.try_recv() else { panic!("nothing was said") };
        assert_eq!(ending, Ending::Internal { what: "the thread of vCPU 7 has panicked".to_owned() });
        assert!(messages.try_recv().is_err());
    }

    #[test]
    fn an_owner_that_is_gone_says_so() {
        let (sender, messages) = channel();
        let caller = Caller(sender);
        let (answered, answer) = channel();
        caller.call(Call::Info, move |answer| {
            let _ = answered.send(answer.is_err());
        });
        drop(messages);
        assert!(answer.recv().unwrap(), "what it has not taken is answered, too");
        caller.handle(1).end(Ending::PowerOff);
        assert_eq!(caller.ask(Call::Pause).unwrap_err().to_string(), "the VMM is about to end");
    }
}
