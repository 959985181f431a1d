// SPDX-License-Identifier: Apache-2.0
//! Whether two clocks agree: the timeline that the VMM writes, and a program that watches the console from outside.
//!
//! Both see init begin: the timeline by its first mark, the watcher by the first word that it prints right after.

use anyhow::{Context, Result};
use flatboot_handoff::marks;

use crate::results::Sample;
use crate::stats;

/// Median difference of the two clocks at init's first statement, as a percentage of the time since exec. Each boot has to tell it
/// by both.
#[expect(clippy::cast_precision_loss, reason = "a ratio of times below 2^52 ns, in millionths")]
pub(super) fn difference<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Result<f64> {
    let all =
        samples.into_iter().map(|sample| of_sample(sample).context("a boot has no mark of init's first statement"));
    let mut millionths = all.collect::<Result<Vec<_>>>()?;
    millionths.sort_unstable();
    let median = stats::median(&millionths).context("there is no boot")?;
    Ok(median as f64 / 10_000.0)
}

/// In millionths.
fn of_sample(sample: &Sample) -> Option<u64> {
    let name = marks::Mark::of(marks::USER_START)?.name;
    let inside = sample.marks.iter().find(|mark| mark.guest && mark.name == name)?.ns;
    sample.console_ns.abs_diff(inside).checked_mul(1_000_000)?.checked_div(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Mark;

    fn sample(inside: u64, outside: u64) -> Sample {
        let marks = vec![Mark { ns: inside, name: "user-start".to_owned(), guest: true }];
        Sample { init_ns: inside, by_mark: true, console_ns: outside, marks, ..Sample::default() }
    }

    #[test]
    fn a_clock_may_be_ahead_or_behind() {
        assert_eq!(of_sample(&sample(1_000_000_000, 1_013_000_000)), Some(13_000));
        assert_eq!(of_sample(&sample(1_000_000_000, 987_000_000)), Some(13_000));
    }

    #[test]
    fn every_boot_has_to_tell_by_both() {
        let of = |all: &[Sample]| difference(all).map_err(|error| error.to_string());
        let told = [(1000, 1010), (1000, 1030), (1000, 1020)].map(|(inside, outside)| sample(inside, outside));
        assert_eq!(of(&told), Ok(2.0));
        let [first, second, _] = told;
        let silent = Sample { marks: Vec::new(), ..sample(1, 1) };
        assert_eq!(of(&[first, silent, second]).unwrap_err(), "a boot has no mark of init's first statement");
    }
}
