// SPDX-License-Identifier: Apache-2.0
//! SIGTERM, SIGINT and SIGHUP: first the guest is asked to power off, then it is ended. What this process was started to ignore
//! it ignores: nohup(1) protects, and a shell's background job is not ended by Ctrl-C.

use std::fs;
use std::io;
use std::mem;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::devices::bus::lock;
use crate::devices::terminal;

/// Whether somebody outside wants the VM to end: then it is not started again.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<Asked>, Condvar)>);

#[derive(Debug, Default)]
struct Asked {
    asked: bool,
    /// Signals that have been told, and that nobody has heard yet.
    unheard: u32,
}

impl Stop {
    fn ask(&self) {
        let mut asked = lock(&self.0.0);
        asked.asked = true;
        asked.unheard += 1;
        self.0.1.notify_all();
    }

    /// It is as if nobody had asked.
    pub fn forget(&self) {
        lock(&self.0.0).asked = false;
    }

    /// Whoever has been told of a signal says so.
    pub fn heard(&self) {
        let mut asked = lock(&self.0.0);
        asked.unheard = asked.unheard.saturating_sub(1);
        self.0.1.notify_all();
    }

    /// Waits `time`, or until all signals have been heard. Whether one has not.
    fn unheard_for(&self, time: Duration) -> bool {
        let (asked, changed) = &*self.0;
        let waited = changed.wait_timeout_while(lock(asked), time, |asked| asked.unheard > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.unheard > 0
    }

    /// Waits `time`, or until it is asked for. Whether it is.
    #[must_use]
    pub fn asked_within(&self, time: Duration) -> bool {
        let (asked, changed) = &*self.0;
        let waited = changed.wait_timeout_while(lock(asked), time, |asked| !asked.asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.asked
    }
}

/// By which a keeper passes a signal on to the VM's process, which may have got the same signal itself.
pub const PASSED_ON: Signal = Signal::USR1;

/// Which signals are wishes of their own.
#[derive(Debug, Default)]
pub struct Wishes {
    hung_up: bool,
    own: u32,
    passed_on: u32,
}

impl Wishes {
    /// Whether `signal` is a new wish. The end of a terminal is told by the kernel and by the shell, and a signal to all of a
    /// process group, as a shell and systemd send it, comes once more by way of the keeper: that must not be two.
    pub fn is_new(&mut self, signal: i32) -> bool {
        if signal == SIGHUP && mem::replace(&mut self.hung_up, true) {
            return false;
        }
        let before = self.own.max(self.passed_on);
        *(if signal == PASSED_ON.as_raw() { &mut self.passed_on } else { &mut self.own }) += 1;
        self.own.max(self.passed_on) > before
    }
}

/// How long whoever is told of signals may be at something else: longer than it waits for a device.
const PATIENCE: Duration = Duration::from_secs(6);

/// Listens from now on: each signal that is a [new wish](Wishes) is told by `tell`, and the first one to `stop`. One that comes
/// while `starting` ends the process, behind `leave`: to start a VM may take long, and nobody asks a guest that is not there to
/// power off. So does one that comes when an earlier one is not heard, as when a snapshot's file system or the reader of a
/// timeline hangs for a while. `begin` is the first that the thread does which listens; it ends if there is nothing to
/// keep. If it is `kept`, a keeper passes signals on.
pub fn listen<G>(
    kept: bool,
    tell: impl Fn() + Send + 'static,
    stop: Stop,
    starting: Arc<AtomicBool>,
    leave: impl Fn() + Send + 'static,
    begin: impl FnOnce() -> Option<G> + Send + 'static,
) -> io::Result<()> {
    let first = process::id() == 1;
    let passed_on = kept.then_some(PASSED_ON.as_raw());
    let mut signals = Signals::new(heard_here().into_iter().chain(passed_on))?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Some(_kept) = begin() else { return };
        let mut wishes = Wishes::default();
        for signal in signals.forever() {
            if !wishes.is_new(signal) {
                continue;
            }
            if starting.load(Ordering::Acquire) || stop.unheard_for(PATIENCE) {
                leave();
                end(signal, first);
            }
            stop.ask();
            tell();
        }
    })?;
    Ok(())
}

/// Ends the process as `signal` does; the `first` one of a container, to which it does nothing, with the status that stands for it.
fn end(signal: i32, first: bool) -> ! {
    terminal::restore();
    if !first {
        // It does not come back.
        let _ = emulate_default_handler(signal);
    }
    process::exit(128 + signal)
}

/// The signals that this process listens for.
#[must_use]
pub fn heard_here() -> Vec<i32> {
    heard(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// The signals to listen for; `status` is /proc/self/status, whose line `SigIgn` is a mask of those that are ignored.
fn heard(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let mut heard = vec![SIGTERM];
    heard.extend([SIGINT, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0));
    heard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_on_two_ways_is_one_wish() {
        const PASSED_ON: i32 = super::PASSED_ON.as_raw();
        for (signals, expected) in [
            (&[SIGTERM, SIGTERM][..], &[true, true][..]),
            (&[SIGTERM, PASSED_ON, PASSED_ON, SIGTERM], &[true, false, true, false]),
            (&[PASSED_ON, SIGINT, SIGTERM], &[true, false, true]),
            (&[SIGHUP, SIGHUP, PASSED_ON, SIGTERM], &[true, false, false, true]),
        ] {
            let mut wishes = Wishes::default();
            let new: Vec<_> = signals.iter().map(|signal| wishes.is_new(*signal)).collect();
            assert_eq!(new, expected, "{signals:?}");
        }
    }

    #[test]
    fn what_nobody_hears_is_noticed() {
        const LONG: Duration = Duration::from_secs(60);
        let stop = Stop::default();
        assert!(!stop.unheard_for(LONG));
        stop.ask();
        assert!(stop.unheard_for(Duration::ZERO));
        let other = stop.clone();
        let hears = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            other.heard();
        });
        assert!(!stop.unheard_for(LONG));
        hears.join().unwrap();
        assert!(stop.asked_within(Duration::ZERO));
    }

    #[test]
    fn what_is_ignored_stays_so() {
        for (status, expected) in [
            ("SigBlk:\t0000000000000003\nSigIgn:\t0000000000000000\n", vec![SIGTERM, SIGINT, SIGHUP]),
            ("SigIgn:\t0000000000001001\n", vec![SIGTERM, SIGINT]),
            ("SigIgn:\t0000000000000006\n", vec![SIGTERM, SIGHUP]),
            ("SigIgn:\tffffffffffffffff\n", vec![SIGTERM]),
            ("", vec![SIGTERM, SIGINT, SIGHUP]),
        ] {
            assert_eq!(heard(status), expected, "{status:?}");
        }
    }
}
