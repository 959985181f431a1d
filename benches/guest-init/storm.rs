// SPDX-License-Identifier: Apache-2.0
//! Memory taken while everything else that takes, gives back or walks memory goes on, too.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::{hog, loopback, memory, walk};

/// One round of something; how often it did what it does.
type Round = fn() -> Result<u64, String>;

const ROUNDS: [(&str, Round); 5] = [
    ("connections", loopback::connections),
    ("programs", programs),
    ("dropped", drop_and_compact),
    ("walked", walk::glance),
    ("read_mib", read_disk),
];

/// A disk, to fill the page cache from.
const DISK: &str = "/dev/vda";
/// Read at a time.
const BLOCK: usize = 1 << 20;
/// Blocks read in a round.
const BLOCKS: u64 = 16;

/// Takes `amount` as [`hog::take`] does, while each of [`ROUNDS`] runs again and again.
pub(crate) fn storm(amount: &str) -> Outcome {
    loopback::up()?;
    let kib = memory::amount_kib(amount)?;
    let over = AtomicBool::new(false);
    let (taken, rounds) = thread::scope(|scope| {
        let stop = &over;
        let rounds = ROUNDS.map(|(name, round)| (name, scope.spawn(move || until(stop, round))));
        let taken = hog::take(kib);
        over.store(true, Ordering::SeqCst);
        (taken, rounds.map(|(name, thread)| (name, thread.join().unwrap_or_else(|_| Err("it died".to_owned())))))
    });
    let all_ran = rounds.iter().all(|(_, done)| matches!(done, Ok(1..)));
    let mut report = taken.report(kib);
    for (name, done) in rounds {
        report[name] = done.map_or_else(Value::String, |done| json!(done));
    }
    Ok((all_ran && taken.is_good(), report))
}

fn until(over: &AtomicBool, round: Round) -> Result<u64, String> {
    let mut done = 0;
    while !over.load(Ordering::SeqCst) {
        done += round()?;
    }
    Ok(done)
}

/// A program is started and ended: this one, which says that it is the init of a guest and ends with 2.
pub(crate) fn programs() -> Result<u64, String> {
    let null = Stdio::null;
    let status = Command::new("/proc/self/exe").stdin(null()).stdout(null()).stderr(null()).status();
    match status.map_err(|error| format!("a program: {error}"))?.code() {
        Some(2) => Ok(1),
        other => Err(format!("a program ended with {other:?} instead of 2")),
    }
}

fn drop_and_compact() -> Result<u64, String> {
    memory::drop_and_compact().map(|()| 1)
}

/// From the start each time: what was read before may have been dropped.
fn read_disk() -> Result<u64, String> {
    let failed = |error| format!("{DISK}: {error}");
    let mut disk = File::open(DISK).map_err(failed)?;
    let mut block = vec![0; BLOCK];
    for _ in 0..BLOCKS {
        disk.read_exact(&mut block).map_err(failed)?;
    }
    Ok(BLOCKS)
}
