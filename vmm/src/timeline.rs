// SPDX-License-Identifier: Apache-2.0
//! The timeline of a boot: what happened when, in integer nanoseconds since this process began to execute, or since a running one
//! was asked to start a VM.
//!
//! The VMM marks its phases; the guest marks its own through the mark port (`flatboot_handoff::marks`). The clock is
//! `CLOCK_MONOTONIC`; zero is the first statement of `main`, which a static binary reaches within tens of microseconds of exec.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use flatboot_handoff::marks;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::memory::guest::page_faults;

/// Marks that a guest may add; a guest that writes more is only not listened to.
const GUEST_MARKS_MAX: usize = 1024;
/// Columns of the waterfall's bar.
const BAR: u32 = 40;

/// Who reported a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// This process.
    Vmm,
    /// The guest, through the mark port.
    Guest,
}

/// One moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Nanoseconds since exec.
    pub ns: u64,
    /// Page faults that the host had served for this process until then, those on guest memory included.
    pub host_faults: u64,
    /// Who says so.
    pub source: Source,
    /// The byte that the guest wrote; none for the VMM's own marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// What was reached.
    pub name: String,
}

/// The file that `--timeline` writes.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    unit: &'static str,
    zero: &'static str,
    /// `zero` on `CLOCK_MONOTONIC`, for whoever timed the exec from outside.
    zero_monotonic_ns: u64,
    vcpus: u16,
    memory_bytes: u64,
    init_ns: Option<u64>,
    marks: &'a [Mark],
}

/// All marks of one boot. Shared by every thread.
#[derive(Debug)]
pub struct Timeline {
    zero: Instant,
    zero_is: &'static str,
    zero_monotonic_ns: u64,
    marks: Mutex<Vec<Mark>>,
}

impl Timeline {
    /// A timeline whose zero is `zero`, the start of the process.
    #[must_use]
    pub fn new(zero: Instant) -> Self {
        Self::since(zero, "first statement of the VMM's main")
    }

    /// A timeline whose zero is `zero`, when somebody asked for a VM to start.
    #[must_use]
    pub fn asked(zero: Instant) -> Self {
        Self::since(zero, "request to start the VM")
    }

    fn since(zero: Instant, zero_is: &'static str) -> Self {
        // In this order the result is never before the true zero, however long this thread waits between the two.
        let age = nanoseconds(zero.elapsed());
        let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).map_or(0, nanoseconds);
        let zero_monotonic_ns = now.saturating_sub(age);
        Self { zero, zero_is, zero_monotonic_ns, marks: Mutex::default() }
    }

    /// Marks that the VMM has finished the phase `name`.
    pub fn phase(&self, name: &str) {
        self.push(Source::Vmm, None, name.to_owned());
    }

    /// Marks what the guest reported.
    pub fn guest(&self, code: u8) {
        let name = marks::Mark::of(code).map_or_else(|| format!("code {code:#04x}"), |mark| mark.name.to_owned());
        self.push(Source::Guest, Some(code), name);
    }

    fn push(&self, source: Source, code: Option<u8>, name: String) {
        let ns = nanoseconds(self.zero.elapsed());
        let host_faults = page_faults();
        // A thread that panicked while it held the lock has at most lost its own mark.
        let mut marks = self.marks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let guest = marks.iter().filter(|m| m.source == Source::Guest).count();
        if source == Source::Vmm || guest < GUEST_MARKS_MAX {
            marks.push(Mark { ns, host_faults, source, code, name });
        }
    }

    /// A copy of the marks so far, in time order.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks = self.marks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        marks.sort_by_key(|m| m.ns);
        marks
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// When the guest reached init: the kernel's mark before it executes it, or init's own first statement.
#[must_use]
pub fn init_reached(marks: &[Mark]) -> Option<u64> {
    let at = |code| marks.iter().find(|m| m.code == Some(code)).map(|m| m.ns);
    at(marks::INIT_EXEC).or_else(|| at(marks::USER_START))
}

/// Writes `timeline` as JSON to `out`.
pub fn write_json(out: &mut impl Write, timeline: &Timeline, vcpus: u16, memory_bytes: u64) -> io::Result<()> {
    let marks = &timeline.marks();
    let document = Document {
        version: 1,
        unit: "ns",
        zero: timeline.zero_is,
        zero_monotonic_ns: timeline.zero_monotonic_ns,
        vcpus,
        memory_bytes,
        init_ns: init_reached(marks),
        marks,
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    out.flush()
}

/// A short picture for the terminal: a line a mark, with its time, the step before it, the
/// page faults that the host served meanwhile, and where it lies in the whole.
#[must_use]
pub fn waterfall(marks: &[Mark]) -> String {
    let end = init_reached(marks).or_else(|| marks.last().map(|m| m.ns)).unwrap_or(0).max(1);
    let mut out =
        format!("{:>10} {:>10} {:>8}  {:<width$}  reached\n", "ms", "step", "faults", "", width = BAR as usize);
    let (mut before, mut faults) = (0, 0);
    for mark in marks {
        let _ = writeln!(
            out,
            "{:>10} {:>10} {:>8}  {}  {}{}",
            milliseconds(mark.ns),
            format!("+{}", milliseconds(mark.ns - before)),
            mark.host_faults.saturating_sub(faults),
            bar(before, mark.ns, end),
            mark.name,
            if mark.source == Source::Guest { "  (guest)" } else { "" },
        );
        (before, faults) = (mark.ns, mark.host_faults.max(faults));
    }
    out
}

/// `before..now` of `0..end`, in blocks; a step too short for a block still gets a thin one.
fn bar(before: u64, now: u64, end: u64) -> String {
    let column = |ns: u64| u128::from(ns.min(end)) * u128::from(BAR) / u128::from(end);
    let (from, to) = (column(before) as usize, column(now) as usize);
    let (lead, body) = match to - from {
        0 => (from.min(BAR as usize - 1), "▏".to_owned()),
        n => (from, "█".repeat(n)),
    };
    let used = lead + body.chars().count();
    format!("{}{}{}", " ".repeat(lead), body, " ".repeat(BAR as usize - used))
}

/// Milliseconds with three decimals, from integers only.
fn milliseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1_000 % 1_000)
}

/// The line that a boot ends with.
#[must_use]
pub fn summary(marks: &[Mark], vcpus: u16, memory: &str) -> String {
    let plural = if vcpus == 1 { "" } else { "s" };
    match init_reached(marks) {
        Some(ns) => {
            format!("init reached after {} ms (VMM exec to /sbin/init), {vcpus} vCPU{plural}, {memory}", ns / 1_000_000)
        }
        None => format!("init not seen (the guest reported no marks), {vcpus} vCPU{plural}, {memory}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(ns: u64, code: Option<u8>) -> Mark {
        Mark {
            ns,
            host_faults: 0,
            source: if code.is_some() { Source::Guest } else { Source::Vmm },
            code,
            name: "x".to_owned(),
        }
    }

    #[test]
    fn a_guest_cannot_grow_the_timeline_without_end() {
        let timeline = Timeline::new(Instant::now());
        for _ in 0..GUEST_MARKS_MAX + 100 {
            timeline.guest(0x7e);
        }
        timeline.phase("still heard");
        assert_eq!(timeline.marks().len(), GUEST_MARKS_MAX + 1);
    }

    #[test]
    fn init_is_the_kernels_mark_or_else_inits_own() {
        let kernel = [mark(5, Some(marks::INIT_EXEC)), mark(9, Some(marks::USER_START))];
        assert_eq!(init_reached(&kernel), Some(5));
        assert_eq!(init_reached(&kernel[1..]), Some(9));
        assert_eq!(init_reached(&[mark(1, None)]), None);
    }

    #[test]
    fn times_stay_whole_nanoseconds_in_json() {
        let timeline = Timeline::new(Instant::now());
        *timeline.marks.lock().unwrap() = vec![mark(1_234_567_891, Some(marks::INIT_EXEC))];
        let mut out = Vec::new();
        write_json(&mut out, &timeline, 2, 1 << 30).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["init_ns"], 1_234_567_891u64);
        assert_eq!(json["marks"][0]["ns"], 1_234_567_891u64);
        assert_eq!(json["zero_monotonic_ns"], timeline.zero_monotonic_ns);
    }

    #[test]
    fn zero_is_a_moment_of_the_monotonic_clock() {
        let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).map_or(0, nanoseconds);
        let before = now();
        let timeline = Timeline::new(Instant::now());
        assert!((before..=now()).contains(&timeline.zero_monotonic_ns));
    }

    #[test]
    fn bars_have_one_width_whatever_the_step() {
        for (before, now, end) in [(0, 0, 1), (0, 10, 10), (9, 10, 10), (10, 12, 10), (3, 3, 10)] {
            assert_eq!(bar(before, now, end).chars().count(), BAR as usize, "{before} {now} {end}");
        }
        assert_eq!(milliseconds(1_002_003_999), "1002.003");
    }
}
