// SPDX-License-Identifier: Apache-2.0
//! The session with flatboot-bench: where reports go, and the command that input and signals are for.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use flatboot_bench::protocol::{self, Frame, Kind, Report};
use rustix::process::{Signal, pidfd_send_signal};

/// What the threads of the agent share.
pub(crate) struct Session {
    control: Mutex<File>,
    current: Mutex<Current>,
    started: Condvar,
}

/// The command that runs, or the last that did.
#[derive(Default)]
pub(crate) struct Current {
    pub(crate) sequence: u32,
    /// To signal it: a descriptor stays its own when the number is used again.
    pub(crate) process: Option<OwnedFd>,
    /// Its standard input, until it is closed.
    pub(crate) stdin: Option<Arc<File>>,
    pub(crate) terminal: Option<Arc<File>>,
}

impl Session {
    pub(crate) fn new(control: File) -> Self {
        Self { control: Mutex::new(control), current: Mutex::default(), started: Condvar::new() }
    }

    pub(crate) fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `current` the command that input and signals go to.
    pub(crate) fn begin(&self, current: Current) {
        *self.current() = current;
        self.started.notify_all();
    }

    pub(crate) fn report(&self, sequence: u32, report: &Report) -> io::Result<()> {
        protocol::write_message(&mut *self.control(), sequence, report)
    }

    pub(crate) fn output(&self, kind: Kind, sequence: u32, bytes: &[u8]) -> io::Result<()> {
        protocol::write_frame(&mut *self.control(), kind, sequence, bytes)
    }

    fn control(&self) -> MutexGuard<'_, File> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the signal `number` to the command `sequence`, and to no later one.
    pub(crate) fn signal(&self, sequence: u32, number: i32) {
        let current = self.current();
        let process = current.process.as_ref().filter(|_| current.sequence == sequence);
        if let (Some(process), Some(signal)) = (process, Signal::from_named_raw(number)) {
            // A program that has just ended needs no signal.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Copies input to whichever command it is for.
    pub(crate) fn feed(&self, mut input: File) {
        while let Ok(Some(frame)) = protocol::read_frame(&mut input) {
            let Some(stdin) = self.stdin_for(&frame) else { continue };
            // Without the lock: a program that does not read must not hold up its signals.
            let closed = frame.body.is_empty() || io::Write::write_all(&mut &*stdin, &frame.body).is_err();
            let mut current = self.current();
            if closed && current.sequence == frame.sequence {
                current.stdin = None;
            }
        }
    }

    /// The input of the command that `frame` is for, once that command is started; none if it takes no more.
    fn stdin_for(&self, frame: &Frame) -> Option<Arc<File>> {
        let mut current = self.current();
        while current.sequence < frame.sequence {
            current = self.started.wait(current).unwrap_or_else(PoisonError::into_inner);
        }
        if current.sequence == frame.sequence { current.stdin.clone() } else { None }
    }
}
