// SPDX-License-Identifier: Apache-2.0
//! SIGTERM, SIGINT and SIGHUP: first the guest is asked to power off, then it is ended. What this process was started to ignore
//! it ignores: nohup(1) protects, and a shell's background job is not ended by Ctrl-C.

use std::fs;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vmm_sys_util::eventfd::EventFd;

use crate::devices::bus::lock;
use crate::ending::Ending;
use crate::vmm::Handle;

/// Whether somebody outside wants the VM to end: then it is not started again.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    fn ask(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    /// Waits `time`, or until it is asked for. Whether it is.
    #[must_use]
    pub fn asked_within(&self, time: Duration) -> bool {
        let (asked, changed) = &*self.0;
        let waited = changed.wait_timeout_while(lock(asked), time, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Listens from now on. The first signal presses `power_button`; `grace` later, or at the second signal, the VM ends. `begin` is the
/// first that the thread does which listens; it ends if there is nothing to keep.
pub fn listen<G>(
    power_button: EventFd,
    grace: Duration,
    vmm: Handle,
    stop: Stop,
    begin: impl FnOnce() -> Option<G> + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new(heard_here())?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Some(_kept) = begin() else { return };
        let mut pending = signals.forever();
        if pending.next().is_none() {
            return;
        }
        stop.ask();
        if power_button.write(1).is_err() {
            return vmm.end(Ending::Stopped { why: "a signal came and the power button does not work".to_owned() });
        }
        tracing::info!("asked the guest to power off");
        vmm.end_after(grace, Ending::Stopped { why: format!("it did not power off within {} s", grace.as_secs()) });
        if pending.next().is_some() {
            vmm.end(Ending::Stopped { why: "a second signal came before the guest had powered off".to_owned() });
        }
    })?;
    Ok(())
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
