// SPDX-License-Identifier: Apache-2.0
//! The ways to the owner of a VM: one for the VM's own threads ([`Ender`]), one for everybody else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Sender, channel};

use super::call::{Answer, Call};
use super::error::{SnapshotError, VmmError};
use crate::counted::Counted;
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
pub(super) struct Reply {
    receive: Option<Receive>,
    /// Who is to make room is not counted.
    _waits: Option<Counted>,
}

impl Reply {
    pub(super) fn send(mut self, answer: Result<Answer, VmmError>) {
        if let Some(send) = self.receive.take() {
            send(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(send) = self.receive.take() {
            send(Err(VmmError::Gone));
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// Most calls that wait for an answer. Whoever has asked may be gone, and what was asked for is kept all the same.
const CALLS_MAX: usize = 128;

/// For whoever wants something of the owner, from any thread.
#[derive(Debug, Clone)]
pub struct Caller {
    messages: Sender<Message>,
    waiting: Arc<AtomicUsize>,
}

impl Caller {
    pub(super) fn new(messages: Sender<Message>) -> Self {
        Self { messages, waiting: Arc::default() }
    }

    /// For the threads of the VM with that number.
    pub(super) fn ender(&self, vm: u64) -> Ender {
        let messages = self.messages.clone();
        // An owner that is gone has ended it.
        Ender::new(move |ending| drop(messages.send(Message::End { vm, ending })))
    }

    /// For the memory device of the VM with that number.
    pub(super) fn reports(&self, vm: u64) -> impl Fn(Report) + Send + use<> {
        let messages = self.messages.clone();
        move |report| drop(messages.send(Message::Memory { vm, report }))
    }

    /// Asks for `call`. `reply` is called with the answer, once and in any case, by a thread that it must not hold up.
    pub fn call(&self, call: Call, reply: impl FnOnce(Result<Answer, VmmError>) + Send + 'static) {
        let waits = Counted::below(CALLS_MAX, &self.waiting);
        if waits.is_none() && !matches!(call, Call::Quit) {
            return reply(Err(VmmError::TooMany(CALLS_MAX)));
        }
        // Not taken, it is dropped, and that is an answer.
        let reply = Reply { receive: Some(Box::new(reply)), _waits: waits };
        let _ = self.messages.send(Message::Call(call, reply));
    }

    /// The same, and waits for the answer.
    pub fn ask(&self, call: Call) -> Result<Answer, VmmError> {
        let (sender, answer) = channel();
        self.call(call, move |answer| drop(sender.send(answer)));
        answer.recv().map_err(|_| VmmError::Gone)?
    }

    /// Says what has become of the files of snapshot number `snapshot`.
    pub(super) fn written(&self, snapshot: u64, result: Result<(), SnapshotError>) {
        let _ = self.messages.send(Message::Written { snapshot, result });
    }

    /// Says that a signal asks for the end.
    pub fn signal(&self) {
        let _ = self.messages.send(Message::Signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_is_gone_says_so() {
        let (sender, messages) = channel();
        let caller = Caller::new(sender);
        let (answered, answer) = channel();
        caller.call(Call::Info, move |answer| answered.send(answer.is_err()).unwrap());
        drop(messages);
        assert!(answer.recv().unwrap(), "what it has not taken is answered, too");
        caller.ender(1).end(Ending::PowerOff);
        assert_eq!(caller.ask(Call::Pause).unwrap_err().to_string(), "the VMM is about to end");
    }

    #[test]
    fn no_more_wait_than_there_is_room_for() {
        let (sender, messages) = channel();
        let caller = Caller::new(sender);
        let fill = || (0..CALLS_MAX).for_each(|_| caller.call(Call::Info, drop));
        fill();
        assert_eq!(caller.ask(Call::Pause).unwrap_err().to_string(), "128 requests wait for an answer: must be fewer");
        // The owner can always be ended.
        caller.call(Call::Quit, drop);
        let waiting: Vec<_> = messages.try_iter().collect();
        assert_eq!(waiting.len(), CALLS_MAX + 1);
        drop(waiting);
        fill();
        assert_eq!(messages.try_iter().count(), CALLS_MAX);
    }
}
