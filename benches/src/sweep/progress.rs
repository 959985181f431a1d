// SPDX-License-Identifier: Apache-2.0
//! What a sweep shows while it runs.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use super::matrix::size;
use crate::results::{End, Sweep, Variant};

/// Counts boots, and from how long each variant took tells how long the rest will.
#[derive(Debug, Default)]
pub(super) struct Progress {
    took: HashMap<usize, (u32, Duration)>,
}

impl Progress {
    /// Before a boot: on a terminal, a line that the next one writes over.
    pub(super) fn begin(&self, sweep: &Sweep, done: u64, variant: usize, round: u32) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{} …", self.line(sweep, done, variant, round));
        }
    }

    /// After a boot that took `wall`, host and all.
    pub(super) fn end(
        &mut self,
        sweep: &Sweep,
        done: u64,
        (variant, round): (usize, u32),
        (end, wall): (&End, Duration),
    ) {
        let (count, total) = self.took.entry(variant).or_default();
        *count += 1;
        *total += wall;
        let result = match end {
            End::Init(sample) => format!("{} ms", sample.init_ns / 1_000_000),
            End::Failed { why, .. } => format!("FAILED: {why}"),
        };
        let line = format!("{}  {result}", self.line(sweep, done, variant, round));
        if io::stderr().is_terminal() && matches!(end, End::Init(_)) {
            eprint!("\r\x1b[K{line}");
        } else if io::stderr().is_terminal() {
            eprintln!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
    }

    /// The line is done with.
    pub(super) fn finish() {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }

    fn line(&self, sweep: &Sweep, done: u64, variant: usize, round: u32) -> String {
        let all = sweep.boots_wanted();
        let name = sweep.variants.get(variant).map(describe).unwrap_or_default();
        let round = if round == 0 { "warm-up".to_owned() } else { format!("round {round} of {}", sweep.runs) };
        let left = self.left(sweep, done).map(|left| format!(", {}", words(left))).unwrap_or_default();
        format!("{done:>4}/{all}  {round}{left}  {name}")
    }

    /// How long the boots after the first `done` will take, if those so far are any guide.
    fn left(&self, sweep: &Sweep, done: u64) -> Option<Duration> {
        let (boots, time) =
            self.took.values().fold((0, Duration::ZERO), |(n, sum), (count, total)| (n + count, sum + *total));
        let usual = time.checked_div(boots)?;
        let one = |variant| self.took.get(&variant).map_or(usual, |(count, total)| *total / *count);
        let done = usize::try_from(done).ok()?;
        Some(sweep.boots().skip(done).map(|(variant, _)| one(variant)).sum())
    }
}

/// "flatboot parallel, 4 GiB, 2 vCPUs"
#[must_use]
pub fn describe(variant: &Variant) -> String {
    let plural = if variant.cpus == 1 { "" } else { "s" };
    format!("{}, {}, {} vCPU{plural}", variant.kind(), size(variant.memory_bytes), variant.cpus)
}

fn words(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..90 => format!("{seconds} s left"),
        seconds => format!("{} min left", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::HostPages;

    #[test]
    fn time_left_is_that_of_the_variants_to_come() {
        let variant = |cpus| Variant {
            vmm: "x".into(),
            mode: "serial".into(),
            threads: None,
            without: None,
            memory_bytes: 1 << 30,
            cpus,
        };
        let sweep = Sweep {
            variants: vec![variant(1), variant(2)],
            runs: 2,
            timeout_ms: 1,
            cmdline: String::new(),
            host_pages: HostPages::Any,
            work: Vec::new(),
        };
        let mut progress = Progress::default();
        assert_eq!(progress.left(&sweep, 0), None);
        progress.took.insert(0, (1, Duration::from_secs(10)));
        // Nothing is known of the other yet: it is taken for as long.
        assert_eq!(progress.left(&sweep, 1), Some(Duration::from_secs(50)));
        progress.took.insert(1, (1, Duration::from_secs(2)));
        assert_eq!(progress.left(&sweep, 2), Some(Duration::from_secs(24)));
        assert_eq!(progress.left(&sweep, 6), Some(Duration::ZERO));
        assert!(progress.line(&sweep, 2, 0, 1).contains("24 s left"), "{}", progress.line(&sweep, 2, 0, 1));
    }
}
