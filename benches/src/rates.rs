// SPDX-License-Identifier: Apache-2.0
//! What guests got done: the rate of each workload, and how it compares with that under QEMU.

use crate::results::{Group, Variant};
use crate::stats::{self, CHANCE, Interval, LEAST_SAMPLES, Resampled, median};
use crate::terminal::bytes;
use crate::work::{Unit, WORKLOADS, Workload};

/// The VMM that others are compared with.
const YARDSTICK: &str = "qemu";

/// One variant's rates.
#[derive(Debug)]
pub(crate) struct Rates<'a> {
    /// The variant.
    pub(crate) variant: &'a Variant,
    /// Those of its workloads, in the order of [`WORKLOADS`].
    pub(crate) rates: Vec<Rate>,
}

/// A variant's rate of one workload.
#[derive(Debug)]
pub(crate) struct Rate {
    /// What is done.
    pub(crate) workload: &'static Workload,
    /// Samples; of the fewer, where two variants are compared.
    pub(crate) n: usize,
    /// The median, in a second.
    pub(crate) median: Option<u64>,
    /// The median under QEMU, if the same guest worked there.
    pub(crate) yardstick: Option<u64>,
    /// The median of the ratios within each round, the variant's over QEMU's.
    pub(crate) by_round: Option<f64>,
    /// The ratio of the medians …
    pub(crate) ratio: Option<f64>,
    /// … and where it lies for all but [`CHANCE`], if there are samples enough.
    pub(crate) interval: Option<Interval>,
}

/// The rates of all variants, QEMU's own only where there is nothing to compare with it.
pub(crate) fn rates<'a>(groups: &'a [Group<'a>]) -> Vec<Rates<'a>> {
    let all = groups.iter().map(|group| {
        let yardstick = yardstick(group.variant, groups);
        let done = |one: &&Workload| group.samples.iter().any(|sample| sample.work.contains_key(one.name));
        let rates = WORKLOADS.iter().filter(done).map(|one| Rate::of(one, group, yardstick)).collect();
        Rates { variant: group.variant, rates }
    });
    let alone = groups.iter().all(|group| group.variant.vmm == YARDSTICK);
    all.filter(|rates| !rates.rates.is_empty() && (alone || rates.variant.vmm != YARDSTICK)).collect()
}

/// The same guest under QEMU.
fn yardstick<'a>(variant: &Variant, groups: &'a [Group<'a>]) -> Option<&'a Group<'a>> {
    let wanted = Variant { vmm: YARDSTICK.to_owned(), ..variant.clone() };
    groups.iter().find(|group| *group.variant == wanted && wanted != *variant)
}

impl Rate {
    fn of(workload: &'static Workload, group: &Group<'_>, yardstick: Option<&Group<'_>>) -> Self {
        let read = |group: &Group<'_>| group.values(|sample| sample.work.get(workload.name).copied());
        let in_order = |group: &Group<'_>| -> Vec<u64> {
            group.samples.iter().filter_map(|sample| sample.work.get(workload.name).copied()).collect()
        };
        let (own, other) = (read(group), yardstick.map(read).unwrap_or_default());
        let n = if yardstick.is_some() { own.len().min(other.len()) } else { own.len() };
        let resampled = Resampled::ratio_of_medians(&own, &other);
        Self {
            workload,
            n,
            median: median(&own),
            yardstick: median(&other),
            by_round: yardstick.and_then(|yardstick| stats::ratio_by_round(&in_order(group), &in_order(yardstick))),
            ratio: resampled.as_ref().map(|resampled| resampled.ratio),
            interval: resampled.filter(|_| n >= LEAST_SAMPLES).map(|resampled| resampled.interval(CHANCE)),
        }
    }

    /// So much in a second, in words.
    pub(crate) fn show(&self, rate: u64) -> String {
        match self.workload.unit {
            Unit::Bytes => format!("{}/s", bytes(rate)),
            Unit::Times => format!("{rate}/s"),
        }
    }

    /// Whether a difference to QEMU is shown: more than it, or less.
    pub(crate) fn is_more(&self) -> Option<bool> {
        let interval = self.interval?;
        if interval.low > 1.0 {
            Some(true)
        } else if interval.high < 1.0 {
            Some(false)
        } else {
            None
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::{End, Results, groups};

    /// Seven rounds and a warm-up of flatboot and QEMU, whose rates `rate` gives by variant and round.
    pub(crate) fn worked(name: &str, rate: impl Fn(usize, u32) -> u64) -> Results {
        let variants = ["flatboot", "qemu"].map(|vmm| variant(vmm, "async", GIB)).to_vec();
        let mut results = sweep(variants, 7, |_, _| 1_000_000);
        results.sweep.work = vec![name.to_owned()];
        for boot in &mut results.boots {
            if let End::Init(sample) = &mut boot.end {
                sample.work.insert(name.to_owned(), rate(boot.variant, boot.round));
            }
        }
        results
    }

    #[test]
    fn a_rate_is_compared_with_that_of_the_same_round() {
        // The machine becomes ten times slower after the third round.
        let results =
            worked("read-32", |variant, round| [120, 100][variant] * if round > 3 { 1 } else { 10 } + u64::from(round));
        let groups = groups(&results);
        let all = rates(&groups);
        assert_eq!(all.iter().map(|rates| rates.variant.vmm.as_str()).collect::<Vec<_>>(), ["flatboot"]);
        let rate = &all[0].rates[0];
        assert_eq!((rate.workload.name, rate.n, rate.median, rate.yardstick), ("read-32", 7, Some(127), Some(107)));
        assert!(rate.by_round.is_some_and(|ratio| (1.18..1.20).contains(&ratio)), "{rate:?}");
        assert_eq!(rate.is_more(), None, "noise of a factor of ten hides it");
    }

    #[test]
    fn more_and_less_are_told() {
        for (flatboot, expected) in [(80, Some(false)), (100, None), (120, Some(true))] {
            let results = worked("tx-1", |variant, round| [flatboot, 100][variant] + u64::from(round % 3));
            assert_eq!(rates(&groups(&results))[0].rates[0].is_more(), expected, "{flatboot}");
        }
    }

    #[test]
    fn without_qemu_there_are_rates_and_no_ratio() {
        let mut results = worked("tx-1", |_, _| 5 << 20);
        results.sweep.variants[1].cpus = 9;
        let groups = groups(&results);
        let rate = &rates(&groups)[0].rates[0];
        assert_eq!((rate.ratio, rate.by_round, rate.n), (None, None, 7));
        assert_eq!(rate.show(5 << 20), "5.00 MiB/s");
    }
}
