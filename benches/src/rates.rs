// SPDX-License-Identifier: Apache-2.0
//! What guests got done: the rate of each workload, and how it compares with that under QEMU.

use std::cmp::Ordering;

use crate::results::{Group, Variant};
use crate::stats::{self, Interval, Resampled, median};
use crate::sweep::describe;
use crate::table::{Block, Cell, Column, Table, Tone, left, or_none, right};
use crate::terminal::{bytes, plain};
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
    /// … and where it lies for all but [`crate::stats::CHANCE`], if there are samples enough.
    pub(crate) interval: Option<Interval>,
}

const COLUMNS: &[Column] = &[
    left("workload"),
    left("what is done").on_page(),
    right("n", 3),
    right("median", 1),
    right("QEMU", 2),
    right("ratio", 0),
    right("95 % interval", 0),
    right("by round", 4),
];
const LEGEND: &str = "What the guest got done in a second. ratio: median over that under QEMU; 2 says twice as much. An \
                      interval that contains 1 shows no difference. by round: median of the ratios within each round.";

/// A row for each workload of each variant; none if guests had nothing to do.
pub(crate) fn table(groups: &[Group<'_>]) -> Option<Table> {
    let block = |of_one: &Rates<'_>| Block {
        title: format!("{}: workloads", plain(&describe(of_one.variant))),
        rows: of_one.rates.iter().map(Rate::row).collect(),
    };
    let blocks: Vec<_> = rates(groups).iter().map(block).collect();
    (!blocks.is_empty()).then_some(Table { columns: COLUMNS, blocks, legend: LEGEND })
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
            interval: resampled.and_then(|resampled| resampled.shown(n)),
        }
    }

    /// So much in a second, in words.
    pub(crate) fn show(&self, rate: u64) -> String {
        match self.workload.unit {
            Unit::Bytes => format!("{}/s", bytes(rate)),
            Unit::Times => format!("{rate}/s"),
        }
    }

    fn row(&self) -> Vec<Cell> {
        let ratio = |ratio| or_none(ratio, |ratio: f64| format!("{ratio:.3}"));
        let mut compared = ratio(self.ratio);
        compared.tone = match self.interval.and_then(Interval::differs) {
            Some(Ordering::Greater) => Tone::Good,
            Some(_) => Tone::Bad,
            None => Tone::Plain,
        };
        vec![
            self.workload.name.into(),
            self.workload.meaning.into(),
            self.n.into(),
            or_none(self.median, |median| self.show(median)),
            or_none(self.yardstick, |median| self.show(median)),
            compared,
            or_none(self.interval, |interval| interval.to_string()),
            ratio(self.by_round),
        ]
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
        assert_eq!(rate.interval.and_then(Interval::differs), None, "noise of a factor of ten hides it");
    }

    #[test]
    fn more_and_less_are_told() {
        for (flatboot, expected) in [(80, Some(Ordering::Less)), (100, None), (120, Some(Ordering::Greater))] {
            let results = worked("tx-1", |variant, round| [flatboot, 100][variant] + u64::from(round % 3));
            let interval = rates(&groups(&results))[0].rates[0].interval;
            assert_eq!(interval.and_then(Interval::differs), expected, "{flatboot}");
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
