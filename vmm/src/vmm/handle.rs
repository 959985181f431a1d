// SPDX-License-Identifier: Apache-2.0
//! The ways to the owner of a VM: one for the VM's own threads ([`Ender`]), one for everybody else.

use std::fmt;
use std::sync::mpsc::{Sender, channel};

use super::call::{Answer, Call};
use super::error::{SnapshotError, VmmError};
use crate::devices::held::Report;
use crate::ender::Ender;
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
    /// A VM's memory has become more or less, or does not.
    Memory {
        /// Which VM.
        vm: u64,
        /// What has become of it.
        report: Report,
    },
    /// Somebody wants something, and an answer.
    Call(Call, Reply),
    /// A snapshot's files are written, or cannot be.
    Written {
        /// Which: one that nobody waits for any more may come late.
        snapshot: u64,
        /// Whether they are.
        result: Result<(), SnapshotError>,
    },
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

/// For whoever wants something of the owner, from any thread.
#[derive(Debug, Clone)]
pub struct Caller(pub(super) Sender<Message>);

impl Caller {
    /// For the threads of the VM with that number.
    pub(super) fn ender(&self, vm: u64) -> Ender {
        let messages = self.0.clone();
        // An owner that is gone has ended it.
        Ender::new(move |ending| drop(messages.send(Message::End { vm, ending })))
    }

    /// For the memory device of the VM with that number.
    pub(super) fn reports(&self, vm: u64) -> impl Fn(Report) + Send + use<> {
        let messages = self.0.clone();
        move |report| drop(messages.send(Message::Memory { vm, report }))
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

    /// Says what has become of the files of snapshot number `snapshot`.
    pub(super) fn written(&self, snapshot: u64, result: Result<(), SnapshotError>) {
        let _ = self.0.send(Message::Written { snapshot, result });
    }

    /// Says that a signal asks for the end.
    pub fn signal(&self) {
        let _ = self.0.send(Message::Signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_is_gone_says_so() {
        let (sender, messages) = channel();
        let caller = Caller(sender);
        let (answered, answer) = channel();
        caller.call(Call::Info, move |answer| answered.send(answer.is_err()).unwrap());
        drop(messages);
        assert!(answer.recv().unwrap(), "what it has not taken is answered, too");
        caller.ender(1).end(Ending::PowerOff);
        assert_eq!(caller.ask(Call::Pause).unwrap_err().to_string(), "the VMM is about to end");
    }
}
