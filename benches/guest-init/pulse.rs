// SPDX-License-Identifier: Apache-2.0
//! A guest that is never at rest: it watches its clock, looks at its memory and renews it, and writes to a disk and reads it back, until somebody writes
//! `stop` to the disk's last block from outside. Whoever pauses the VM meanwhile wants to know what it made of that.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde_json::json;

use crate::devices::{BLOCK, size};
use crate::memory::Held;
use crate::outcome::Outcome;
use crate::report;

/// What is no scheduler's doing.
const JUMP: Duration = Duration::from_millis(50);

/// Chunks of memory that are held meanwhile.
const HELD_CHUNKS: u64 = 4;

/// Blocks that are written before memory is given other values.
const RENEWED: u64 = 64;

/// Jumps that are told one by one.
const EACH_MAX: usize = 4096;

/// For I/O past the page cache.
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

/// Beats until it is told to stop. Its first line says that it has begun.
pub(crate) fn pulse(device: &str) -> Outcome {
    let failed = |error: io::Error| format!("{device}: {error}");
    let blocks = (size(device)? / BLOCK as u64).saturating_sub(1);
    let disk = File::options().read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(device);
    let disk = disk.map_err(failed)?;
    let mut held = Held::take(HELD_CHUNKS);
    report::print(&json!({ "check": "pulse", "begun": blocks > 0 }));
    let stop = AtomicBool::new(blocks == 0);
    let (clock, written) = thread::scope(|scope| {
        let clock = scope.spawn(|| watch(&stop));
        let written = write(&disk, blocks, &mut held, &stop);
        stop.store(true, Ordering::Relaxed);
        (clock.join(), written)
    });
    let Written { writes, wrong, lost } = written.map_err(failed)?;
    let clock = clock.map_err(|_| "the clock's thread panicked".to_owned())?;
    let (pages, missing) = held.look();
    let lost = lost + missing;
    let report = json!({
        "writes": writes, "wrong": wrong, "pages": pages, "lost": lost, "looks": clock.looks,
        "backwards": clock.backwards, "jumps": clock.jumps, "jumped_ns": clock.jumped.as_nanos(),
        "each": clock.each.iter().map(|pair| pair.map(|time| time.as_nanos())).collect::<Vec<_>>(),
    });
    Ok((writes > 0 && wrong == 0 && lost == 0 && clock.backwards == 0, report))
}

/// What has come of writing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    writes: u64,
    /// Blocks that were not what was written,
    wrong: u64,
    /// and pages of memory.
    lost: usize,
}

/// Writes and reads back block after block, looks before at what it had written there, and now and then at all that is `held`.
fn write(disk: &File, blocks: u64, held: &mut Held, stop: &AtomicBool) -> io::Result<Written> {
    let mut seen = Written::default();
    while !stop.load(Ordering::Relaxed) && !block(disk, blocks)?.0.starts_with(b"stop") {
        if let Some(last) = seen.writes.checked_sub(blocks) {
            seen.wrong += differs(disk, blocks, last)?;
        }
        disk.write_all_at(&written(seen.writes).0, seen.writes % blocks * BLOCK as u64)?;
        seen.wrong += differs(disk, blocks, seen.writes)?;
        seen.writes += 1;
        if seen.writes.is_multiple_of(RENEWED) {
            seen.lost += held.renew().1;
        }
    }
    for write in seen.writes.saturating_sub(blocks)..seen.writes {
        seen.wrong += differs(disk, blocks, write)?;
    }
    Ok(seen)
}

/// What the `write`th writes.
fn written(write: u64) -> Block {
    Block(std::array::from_fn(|n| u8::try_from((n as u64 + write) % 251).unwrap_or_default()))
}

fn block(disk: &File, number: u64) -> io::Result<Block> {
    let mut block = Block([0xff; BLOCK]);
    disk.read_exact_at(&mut block.0, number * BLOCK as u64)?;
    Ok(block)
}

/// 1 if what the `write`th wrote to one of so many `blocks` is not there.
fn differs(disk: &File, blocks: u64, write: u64) -> io::Result<u64> {
    Ok((block(disk, write % blocks)?.0 != written(write).0).into())
}

/// What a clock that is looked at all the time has shown.
#[derive(Debug, Default)]
struct Clock {
    looks: u64,
    backwards: u64,
    jumps: u64,
    jumped: Duration,
    /// Of each jump, when it was and how far it went.
    each: Vec<[Duration; 2]>,
}

fn watch(stop: &AtomicBool) -> Clock {
    let (mut clock, begin) = (Clock::default(), Instant::now());
    let mut last = begin;
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        clock.look(begin, last, now);
        last = now;
    }
    clock
}

impl Clock {
    fn look(&mut self, begin: Instant, last: Instant, now: Instant) {
        self.looks += 1;
        match now.checked_duration_since(last) {
            None => self.backwards += 1,
            Some(step) if step >= JUMP => {
                self.jumps += 1;
                self.jumped += step;
                if self.each.len() < EACH_MAX {
                    self.each.push([last.saturating_duration_since(begin), step]);
                }
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_clock_shows() {
        let (mut clock, now) = (Clock::default(), Instant::now());
        clock.look(now, now, now);
        clock.look(now, now, now + JUMP);
        clock.look(now, now, now + JUMP / 2);
        clock.look(now, now + JUMP, now);
        assert_eq!((clock.looks, clock.backwards, clock.jumps, clock.jumped), (4, 1, 1, JUMP));
        clock.look(now, now + JUMP, now + 3 * JUMP);
        assert_eq!(clock.each, [[Duration::ZERO, JUMP], [JUMP, 2 * JUMP]]);
    }

    #[test]
    fn it_writes_until_it_is_told_to_stop() {
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(3 * BLOCK as u64).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| write(&disk, 2, &mut Held::take(1), &stop));
            disk.write_all_at(b"stop", 2 * BLOCK as u64).unwrap();
            let seen = writer.join().unwrap().unwrap();
            assert_eq!((seen.wrong, seen.lost), (0, 0));
        });
    }

    #[test]
    fn a_block_that_has_changed_is_seen() {
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(3 * BLOCK as u64).unwrap();
        disk.write_all_at(&written(0).0, 0).unwrap();
        disk.write_all_at(&written(3).0, BLOCK as u64).unwrap();
        assert_eq!([0, 1, 3].map(|write| differs(&disk, 2, write).unwrap()), [0, 1, 0]);
    }
}
