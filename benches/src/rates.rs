// SPDX-License-Identifier: Apache-2.0
//! What guests got done: the rate of each workload, and how it compares with that under QEMU, or on stock 6.12.

use crate::modes::STOCK;
use crate::results::{Group, Sample, Variant};
use crate::stats::{self, Interval, Resampled, median};
use crate::sweep::describe;
use crate::table::{Block, Cell, Column, Table, left, or_none, ratio, right};
use crate::terminal::{bytes, plain};
use crate::work::{Unit, WORKLOADS, Workload, Yardstick};

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
    /// The median of the [`Yardstick`], if it did the same.
    pub(crate) yardstick: Option<u64>,
    /// The median of the ratios within each round that both got done, the variant's over the yardstick's.
    pub(crate) by_round: Option<f64>,
    /// Where that lies for all but [`crate::stats::CHANCE`], if there are rounds enough.
    pub(crate) by_round_interval: Option<Interval>,
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
    right("compared with", 2),
    right("ratio", 0),
    right("95 % interval", 0),
    right("by round", 4),
];
const LEGEND: &str = "What the guest got done in a second. ratio: median over that of the same VM under QEMU, or on stock \
                      6.12; 2 says twice as much. An interval that contains 1 shows no difference. by round: median of \
                      the ratios within each round.";

/// A row for each workload of each variant; none if guests had nothing to do.
pub(crate) fn table(groups: &[Group<'_>]) -> Option<Table> {
    let block = |of_one: &Rates<'_>| Block {
        title: format!("{}: workloads", plain(&describe(of_one.variant))),
        rows: of_one.rates.iter().map(Rate::row).collect(),
    };
    let blocks: Vec<_> = rates(groups).iter().map(block).collect();
    (!blocks.is_empty()).then_some(Table { columns: COLUMNS, blocks, legend: LEGEND })
}

/// The rates of all variants, a yardstick's own only where there is nothing to compare with it.
pub(crate) fn rates<'a>(groups: &'a [Group<'a>]) -> Vec<Rates<'a>> {
    let done =
        |group: &Group<'_>, one: &Workload| group.samples.iter().any(|sample| sample.work.contains_key(one.name));
    let alone = |yardstick: Yardstick| groups.iter().all(|group| yardstick.of(group.variant) == *group.variant);
    let all = groups.iter().map(|group| {
        let rate = |one: &'static Workload| {
            let yardstick = one.yardstick();
            let wanted = yardstick.of(group.variant);
            let is_other = wanted != *group.variant;
            let other = groups.iter().find(|other| is_other && wanted == *other.variant);
            (done(group, one) && (is_other || alone(yardstick))).then(|| Rate::of(one, group, other))
        };
        Rates { variant: group.variant, rates: WORKLOADS.iter().filter_map(rate).collect() }
    });
    all.filter(|rates| !rates.rates.is_empty()).collect()
}

impl Yardstick {
    /// What `variant` is compared with; itself, if it is that.
    fn of(self, variant: &Variant) -> Variant {
        let mut wanted = variant.clone();
        match self {
            Self::Qemu => "qemu".clone_into(&mut wanted.vmm),
            Self::Stock => {
                STOCK.clone_into(&mut wanted.mode);
                wanted.threads = None;
            }
        }
        wanted
    }

    fn name(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Stock => "stock 6.12",
        }
    }
}

impl Rate {
    fn of(workload: &'static Workload, group: &Group<'_>, yardstick: Option<&Group<'_>>) -> Self {
        let done = |sample: &Sample| sample.work.get(workload.name).copied();
        let (paired, beside) = yardstick.map(|yardstick| group.paired(yardstick, done)).unwrap_or_default();
        let (own, other) = (group.values(done), yardstick.map(|group| group.values(done)).unwrap_or_default());
        let n = if yardstick.is_some() { own.len().min(other.len()) } else { own.len() };
        let resampled = Resampled::ratio_of_medians(&own, &other);
        Self {
            workload,
            n,
            median: median(&own),
            yardstick: median(&other),
            by_round: stats::ratio_by_round(&paired, &beside),
            by_round_interval: stats::interval_by_round(&paired, &beside),
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
        vec![
            self.workload.name.into(),
            self.workload.meaning.into(),
            self.n.into(),
            or_none(self.median, |median| self.show(median)),
            or_none(self.yardstick, |median| format!("{} {}", self.workload.yardstick().name(), self.show(median))),
            ratio(self.ratio, self.interval),
            or_none(self.interval, |interval| interval.to_string()),
            ratio(self.by_round, None),
        ]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cmp::Ordering;

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
    fn rounds_that_one_of_the_two_lost_are_left_out() {
        // Each round is ten times as fast as the one before, so that no round can stand for another.
        let mut results = worked("tx-1", |variant, round| [3, 2][variant] * 10u64.pow(round));
        let mut fail = |variant: usize, round: u32| {
            let failed = |boot: &&mut crate::results::Boot| (boot.variant, boot.round) == (variant, round);
            let boot = results.boots.iter_mut().find(failed).unwrap();
            boot.end = End::Failed { why: "no init".to_owned(), console: Vec::new() };
            rates(&groups(&results))[0].rates[0].by_round
        };
        assert_eq!([fail(0, 2), fail(1, 5)], [Some(1.5), Some(1.5)]);
    }

    #[test]
    fn what_the_kernel_does_is_compared_with_stock() {
        let mut results = worked("touch", |variant, round| [90, 60][variant] + u64::from(round % 3));
        let [ours, stock] = &mut results.sweep.variants[..] else { unreachable!() };
        *stock = Variant { mode: STOCK.to_owned(), ..ours.clone() };
        ours.threads = Some("2".to_owned());
        let groups = groups(&results);
        let all = rates(&groups);
        assert_eq!((all.len(), all[0].variant.mode.as_str()), (1, "async"));
        assert!(all[0].rates[0].ratio.is_some_and(|ratio| (1.4..1.6).contains(&ratio)), "{all:?}");
        let table = table(&groups).unwrap();
        assert!(format!("{:?}", table.blocks[0].rows).contains("stock 6.12 61"), "{table:?}");
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
