// SPDX-License-Identifier: Apache-2.0
//! One QEMU process: started, watched, and gone when its owner is.
#![expect(
    unsafe_code,
    reason = "the parent-death signal is set between fork and exec, which std only allows as unsafe"
)]

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, set_parent_process_death_signal};

use super::memory::Lent;
use super::qemu;

/// A running QEMU, killed when this is dropped.
#[derive(Debug)]
pub(super) struct Machine {
    killer: Killer,
    ended: mpsc::Receiver<ExitStatus>,
    /// Of use to the next host, once this one has ended.
    _memory: Lent,
}

/// Ends the host from any thread.
#[derive(Debug, Clone)]
pub struct Killer {
    process: Arc<OwnedFd>,
    /// The signal on whose behalf the host was ended.
    because_of: Arc<Mutex<Option<i32>>>,
}

impl Machine {
    /// Starts QEMU, which has `memory`, with its messages going to `messages`.
    pub(super) fn start(arguments: Vec<OsString>, memory: Lent, messages: File) -> io::Result<Self> {
        let (started, start_result) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        // The parent-death signal is tied to the thread that starts the process: this one lives until QEMU is reaped.
        thread::Builder::new().name("qemu".into()).spawn(move || match spawn(arguments, messages) {
            Err(error) => drop(started.send(Err(error))),
            Ok((mut child, process)) => {
                let _ = started.send(Ok(process));
                if let Ok(status) = child.wait() {
                    let _ = ending.send(status);
                }
            }
        })?;
        let process = start_result.recv().map_err(io::Error::other)??;
        let killer = Killer { process: Arc::new(process), because_of: Arc::default() };
        Ok(Self { killer, ended, _memory: memory })
    }

    pub(super) fn killer(&self) -> &Killer {
        &self.killer
    }

    /// The exit status, if QEMU ends within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        self.ended.recv_timeout(limit).ok()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.killer.kill();
        // Reaped before we go on: its memory is for the next host.
        let _ = self.ended.recv();
    }
}

impl Killer {
    /// Ends the host at once. A host that has ended already is left alone.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&*self.process, Signal::KILL);
    }

    /// Ends the host at once because the caller was sent `signal`.
    pub fn kill_for(&self, signal: i32) {
        if let Ok(mut because_of) = self.because_of.lock() {
            *because_of = Some(signal);
        }
        self.kill();
    }

    /// Readable once the host has ended.
    pub(super) fn process(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.process)
    }

    /// The signal given to [`Killer::kill_for`].
    pub(super) fn because_of(&self) -> Option<i32> {
        self.because_of.lock().ok().and_then(|signal| *signal)
    }
}

fn spawn(arguments: Vec<OsString>, messages: File) -> io::Result<(Child, OwnedFd)> {
    let mut command = Command::new(qemu::PROGRAM);
    command.args(arguments).stdin(Stdio::null()).stdout(messages.try_clone()?).stderr(messages);
    // A Ctrl-C at the terminal is for the program inside, not for QEMU.
    command.process_group(0);
    // SAFETY: the closure only calls prctl(2), which is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    let child = command.spawn()?;
    // Not reaped yet, so the number is still its own.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((child, process))
}

/// "exit code 1" or "killed by signal 9".
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("QEMU ended with exit code {code}"),
        (None, Some(signal)) => format!("QEMU was killed by signal {signal}"),
        (None, None) => "QEMU ended".to_owned(),
    }
}
