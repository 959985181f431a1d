// SPDX-License-Identifier: Apache-2.0
//! Whether two clocks agree: the timeline that the VMM writes, and a program that watches the console from outside.
//!
//! Both see init begin: the timeline by its first mark, the watcher by the first word that it prints right after.

use std::path::Path;

use anyhow::{Context, Result};
use flatboot_handoff::marks;

use super::sweeps;
use crate::results::{Results, Sample};
use crate::stats;

/// What is booted: flatboot with 2 vCPUs and 1 GiB.
const SWEEP: &[&str] = &["--vmm", "flatboot", "--mode", "parallel", "--memory", "1G", "--cpus", "2"];

/// Median difference of the two clocks at init's first statement, as a percentage of the time since exec, over `runs` boots.
/// The sweep stays in `out`.
pub(super) fn measure(runs: usize, out: &Path) -> Result<f64> {
    difference(&sweeps::run(SWEEP, runs, out)?).context("no boot told when init began by both clocks")
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of times below 2^52 ns, in millionths")]
fn difference(results: &Results) -> Option<f64> {
    let mut millionths: Vec<_> = results.boots.iter().filter_map(|boot| of_sample(boot.sample()?)).collect();
    millionths.sort_unstable();
    Some(stats::median(&millionths)? as f64 / 10_000.0)
}

/// In millionths.
fn of_sample(sample: &Sample) -> Option<u64> {
    let name = marks::Mark::of(marks::USER_START)?.name;
    let inside = sample.marks.iter().find(|mark| mark.guest && mark.name == name)?.ns;
    sample.console_ns.abs_diff(inside).checked_mul(1_000_000)?.checked_div(inside)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::results::Mark;

    fn sample(inside: u64, outside: u64) -> Sample {
        let mark = Mark { ns: inside, name: "user-start".to_owned(), guest: true };
        let (first_instruction_ns, host_memory_bytes) = (None, 1);
        let marks = vec![mark];
        let work = BTreeMap::new();
        Sample {
            init_ns: inside,
            by_mark: true,
            console_ns: outside,
            first_instruction_ns,
            host_memory_bytes,
            marks,
            work,
            began_ns: None,
        }
    }

    #[test]
    fn a_clock_may_be_ahead_or_behind() {
        assert_eq!(of_sample(&sample(1_000_000_000, 1_013_000_000)), Some(13_000));
        assert_eq!(of_sample(&sample(1_000_000_000, 987_000_000)), Some(13_000));
        assert_eq!(of_sample(&Sample { marks: Vec::new(), ..sample(1, 1) }), None);
    }
}
