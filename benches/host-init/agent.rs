// SPDX-License-Identifier: Apache-2.0
//! Takes orders from flatboot-bench.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use flatboot_bench::wire::{self, CONTROL_PORT, Frame, Kind, Order, Report, STDIN_PORT};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{mounts, ports, program};

/// What the threads of the agent share.
pub(crate) struct Agent {
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

/// Runs until flatboot-bench is gone.
pub(crate) fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("host-init: agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    let control = ports::open(CONTROL_PORT)?;
    let input = ports::open(STDIN_PORT)?;
    let mut orders = control.try_clone()?;
    let agent = Arc::new(Agent { control: Mutex::new(control), current: Mutex::default(), started: Condvar::new() });
    agent.report(0, &Report::Ready(wire::VERSION))?;
    let feeder = Arc::clone(&agent);
    thread::spawn(move || feeder.feed(input));
    while let Some(frame) = wire::read_frame(&mut orders)? {
        match frame.message()? {
            Order::Setup(setup) => {
                let report = match mounts::programs_root(&setup) {
                    Ok(()) => Report::SetUp,
                    Err(error) => Report::Failed(error.to_string()),
                };
                agent.report(0, &report)?;
            }
            Order::Start(start) => program::start(&agent, frame.sequence, start)?,
            Order::Signal(number) => agent.signal(number),
            Order::Resize(size) => {
                let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
                if let Some(terminal) = &agent.current().terminal {
                    tcsetwinsize(&**terminal, size)?;
                }
            }
        }
    }
    Ok(())
}

impl Agent {
    pub(crate) fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `current` the command that input and signals go to.
    pub(crate) fn begin(&self, current: Current) {
        *self.current() = current;
        self.started.notify_all();
    }

    pub(crate) fn report(&self, sequence: u32, report: &Report) -> io::Result<()> {
        wire::write_message(&mut *self.control(), sequence, report)
    }

    pub(crate) fn output(&self, kind: Kind, sequence: u32, bytes: &[u8]) -> io::Result<()> {
        wire::write_frame(&mut *self.control(), kind, sequence, bytes)
    }

    fn control(&self) -> MutexGuard<'_, File> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, number: i32) {
        if let (Some(process), Some(signal)) = (&self.current().process, Signal::from_named_raw(number)) {
            // A program that has just ended needs no signal.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Copies input to whichever command it is for.
    fn feed(&self, mut input: File) {
        while let Ok(Some(frame)) = wire::read_frame(&mut input) {
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
