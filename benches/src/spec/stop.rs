// SPDX-License-Identifier: Apache-2.0
//! A signal ends everything that was started: hosts, guests, cargo and what it runs, wherever in the tree they are.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long processes may take to end when they are asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How long what was ended with a proof may take to be gone.
const SETTLE: Duration = Duration::from_millis(500);
/// How long the last of them may take to vanish once they are killed.
const VANISH: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Knows whether a signal came. From [`Stop::catch`] on none ends this process by itself: it always cleans up behind itself.
#[derive(Debug)]
pub(super) struct Stop {
    signal: Arc<AtomicI32>,
}

impl Stop {
    /// Catches SIGHUP, SIGINT and SIGTERM. After the first, this process can start nothing that lives on.
    pub(super) fn catch() -> io::Result<Self> {
        // What a dead test leaves running becomes a child of this process, and is found.
        set_child_subreaper(Some(getpid()))?;
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let stop = Self { signal: Arc::default() };
        let seen = Arc::clone(&stop.signal);
        thread::Builder::new().name("signals".into()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                seen.store(signal, Ordering::SeqCst);
                end_everything(&mut signals);
            }
        })?;
        Ok(stop)
    }

    /// The signal that came.
    pub(super) fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// After a signal: waits until nothing is left that was started.
    pub(super) fn settle() {
        are_gone(GRACE + VANISH);
    }

    /// Ends what a proof that is over has left running, and gives the number of those processes.
    pub(super) fn end_leftovers() -> usize {
        if are_gone(SETTLE) {
            return 0;
        }
        let left = descendants();
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        are_gone(VANISH);
        left.len()
    }
}

/// Whether all that was started is gone within `limit`.
fn are_gone(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if descendants().is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(PAUSE);
    }
}

/// Asks each process once, and kills those that are still there after the grace period or after a second signal. Goes on
/// until this process ends: what runs now may be about to start something else.
fn end_everything(signals: &mut Signals) {
    let (since, mut asked, mut again) = (Instant::now(), HashSet::new(), false);
    loop {
        again |= signals.pending().next().is_some();
        let kill = again || since.elapsed() > GRACE;
        for pid in descendants() {
            // One that has ended by now needs no signal.
            if kill {
                let _ = kill_process(pid, Signal::KILL);
            } else if asked.insert(pid) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        thread::sleep(PAUSE);
    }
}

/// Every live process that this one started, and that those started.
fn descendants() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let processes: BTreeMap<i32, i32> = numbers.filter_map(|pid| Some((pid, parent_of_live(pid)?))).collect();
    let own = getpid().as_raw_nonzero().get();
    let is_below = |pid: i32| {
        let mut at = pid;
        // Parents are read one by one while the tree changes; what looks like a ring ends here.
        for _ in 0..processes.len() {
            match processes.get(&at) {
                Some(parent) if *parent == own => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    processes.keys().filter(|pid| is_below(**pid)).filter_map(|pid| Pid::from_raw(*pid)).collect()
}

/// The parent of process `pid`; none if it has ended. Source: proc(5), `/proc/PID/stat`.
fn parent_of_live(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it, in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_grandchild_is_found_and_a_dead_child_is_not() {
        let mut shell =
            Command::new("sh").args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut number = [0; 16];
        let n = shell.stdout.as_mut().unwrap().read(&mut number).unwrap();
        let sleep: i32 = std::str::from_utf8(&number[..n]).unwrap().trim().parse().unwrap();
        let sleep = Pid::from_raw(sleep).unwrap();
        let parent = Pid::from_child(&shell);
        let found = descendants();
        assert!(found.contains(&sleep) && found.contains(&parent));
        kill_process(sleep, Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert!(!descendants().contains(&parent));
    }
}
