// SPDX-License-Identifier: Apache-2.0
//! `--restart-on-reset`: a process that starts the VM's, and starts it again when the guest has reset.
//!
//! The VM's own process could not: in its jail it can start no program. This one is in none, and has nothing to do with guests but
//! the exit status of the process that runs one. The VM ends with it, however that ends.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::process::{self, Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, OnceLock};
use std::{env, thread};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal, waitid,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

use crate::devices::bus::lock;
use crate::field::Field;
use crate::signals::{self, Wishes};
use crate::stdio;

const RESTART: Field = Field::section("restart_on_reset");

/// Set for the VM's process: the process that starts it, how many times it has started it again, and a number that stays the same.
const KEPT: &str = "FLATBOOT_KEPT";
/// `si_code` of a signal that the kernel sends, as it does when a key is pressed.
const SI_KERNEL: i32 = 0x80;

/// What the VM's process ends with when it is to be started again. Nobody else sees it.
pub const AGAIN: u8 = 100;

/// Why there is no VM to keep.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Signals for the VM cannot be had.
    #[error("{RESTART}: signals cannot be handled")]
    Signals(#[source] io::Error),
    /// This program cannot be started.
    #[error("{RESTART}: this program cannot be started again")]
    Start(#[source] io::Error),
    /// A signal has ended the VM's process.
    #[error("{RESTART}: the VM's process has been ended by signal {0}")]
    Killed(i32),
}

/// What a keeper has told this process.
struct Told {
    keeper: i32,
    restarts: u64,
    seed: u64,
}

/// What this process has been told, if it has a keeper.
fn kept() -> Option<Told> {
    told(&env::var(KEPT).ok()?)
}

fn told(value: &str) -> Option<Told> {
    let mut fields = value.split(':');
    let (keeper, restarts, seed) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Told { keeper: keeper.parse().ok()?, restarts: restarts.parse().ok()?, seed: seed.parse().ok()? })
}

/// Whether this VM's guest has reset before.
#[must_use]
pub fn has_restarted() -> bool {
    kept().is_some_and(|told| told.restarts > 0)
}

/// A number that is another one for each VM, and the same for all processes that run it.
#[must_use]
pub fn seed() -> u64 {
    kept().map_or_else(random, |told| told.seed)
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether a keeper has started this process, which then ends when that one does.
#[must_use]
pub fn is_kept() -> bool {
    static IS_KEPT: OnceLock<bool> = OnceLock::new();
    *IS_KEPT.get_or_init(ask_to_end_with_keeper)
}

/// Whether there is one. If it has ended already, so does this process: nobody is there who would end it.
fn ask_to_end_with_keeper() -> bool {
    let Some(Told { keeper, .. }) = kept() else { return false };
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    let is_there = getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == keeper);
    if asked.is_err() || !is_there {
        stdio::tell(&format!("flatboot: error: {KEPT}: process {keeper}, which has started this one, is gone"));
        process::exit(1);
    }
    true
}

/// What has come of a VM in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Its last process has ended with this exit status.
    Status(u8),
    /// The signal that was passed on to it came before it listened, and has ended it.
    Stopped,
}

/// Runs this program with the same arguments as often as its guest resets.
pub fn keep() -> Result<Kept, KeepError> {
    let program = env::current_exe().map_err(KeepError::Start)?;
    let passing = Passing::start().map_err(KeepError::Signals)?;
    let seed = random();
    for restarts in 0u64.. {
        let mut command = Command::new(&program);
        command.args(env::args_os().skip(1)).env(KEPT, format!("{}:{restarts}:{seed}", process::id()));
        let Some(status) = passing.run(&mut command).map_err(KeepError::Start)? else {
            return Ok(if restarts == 0 { Kept::Stopped } else { Kept::Status(0) });
        };
        match status.code().map(u8::try_from) {
            Some(Ok(AGAIN)) if !passing.is_asked() => {}
            // Asked to end while no VM was there to hear it: the guest has reset, and that was all.
            Some(Ok(AGAIN)) => return Ok(Kept::Status(0)),
            Some(status) => return Ok(Kept::Status(status.unwrap_or(u8::MAX))),
            None if passing.is_asked() => return Ok(Kept::Stopped),
            None => return Err(KeepError::Killed(std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0))),
        }
    }
    Ok(Kept::Status(0))
}

/// Passes signals on to the VM's process.
struct Passing(Arc<Mutex<Passed>>);

#[derive(Default)]
struct Passed {
    /// The VM's process, while it is there and nobody has waited for it.
    to: Option<Pid>,
    /// One has come.
    asked: bool,
}

impl Passing {
    fn start() -> io::Result<Self> {
        let mut signals = SignalsInfo::<WithRawSiginfo>::new(signals::heard_here())?;
        let passed = Arc::new(Mutex::new(Passed::default()));
        let shared = Arc::clone(&passed);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut wishes = Wishes::default();
            for info in &mut signals {
                let mut passed = lock(&shared);
                passed.asked = true;
                // A key that is pressed strikes the VM's process, too.
                let is_here_alone = info.si_code != SI_KERNEL;
                if let Some(to) = passed.to.filter(|_| is_here_alone && wishes.is_new(info.si_signo)) {
                    // It may be over: then there is nothing to end.
                    let _ = kill_process(to, signals::PASSED_ON);
                }
            }
        })?;
        Ok(Self(passed))
    }

    fn is_asked(&self) -> bool {
        lock(&self.0).asked
    }

    /// Runs `command` to its end, unless a signal has come.
    fn run(&self, command: &mut Command) -> io::Result<Option<ExitStatus>> {
        let mut child = {
            let mut passed = lock(&self.0);
            // What has come since anybody looked would be passed on to nobody.
            if passed.asked {
                return Ok(None);
            }
            let child = command.spawn()?;
            passed.to = pid(&child);
            child
        };
        // Its number stays its own until it is waited for: no other process is sent its signals.
        if let Some(pid) = pid(&child) {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == Errno::INTR) {}
        }
        lock(&self.0).to = None;
        child.wait().map(Some)
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let Some(Told { keeper, restarts, seed }) = told("12:3:18446744073709551615") else { panic!("nothing") };
        assert_eq!((keeper, restarts, seed), (12, 3, u64::MAX));
        for wrong in ["", "12", "12:3", "12:3:", "x:3:4", "12:-1:4"] {
            assert!(told(wrong).is_none(), "{wrong}");
        }
    }
}
