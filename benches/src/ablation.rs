// SPDX-License-Identifier: Apache-2.0
//! What each part is worth: variants with one part switched off, each over the same with the full set.

use crate::results::{Group, Variant, blocks};
use crate::stats::{Interval, Resampled, median};
use crate::table::{Block, Cell, Column, Table, left, or_none, ratio, right};
use crate::terminal::{Clock, bytes, plain, size};

/// Variants that differ in nothing but memory and the part that is off.
#[derive(Debug)]
pub(crate) struct Set<'a> {
    /// "flatboot async, 2 vCPUs"
    pub(crate) title: String,
    /// By part in the order of the sweep, then by memory.
    pub(crate) parts: Vec<Part<'a>>,
}

/// One part, at one size.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The switch that is off.
    pub(crate) name: &'a str,
    /// Boots with it off.
    pub(crate) without: &'a Group<'a>,
    /// Boots with everything on.
    pub(crate) full: &'a Group<'a>,
    /// The fewer samples of the two; of fleets, the fewer rounds.
    pub(crate) n: usize,
    /// Median time to init without it over that of the full set, if both have samples.
    pub(crate) ratio: Option<f64>,
    /// Where that ratio lies for all but [`crate::stats::CHANCE`], if there are samples enough.
    pub(crate) interval: Option<Interval>,
}

const COLUMNS: &[Column] = &[
    left("switched off").once(),
    right("memory", 0),
    right("n", 3),
    right("full set", 2),
    right("without", 1),
    right("ratio", 0),
    right("95 % interval", 0),
    right("host memory", 4),
];
const LEGEND: &str = "ratio: median time to init without the part over that of the full set; 1.5 says that boots take half \
                      as long again without it. An interval that contains 1 shows no difference. host memory: the full \
                      set's and what it is without, medians.";

/// A row for each part and size; none if no part was switched off.
pub(crate) fn table(groups: &[Group<'_>]) -> Option<Table> {
    let sets = sets(groups);
    let parts = sets.iter().flat_map(|set| &set.parts).flat_map(|part| [part.full, part.without]);
    let clock = Clock::for_all(parts.filter_map(|group| median(&group.independent_inits())));
    let block = |set: &Set<'_>| Block {
        title: format!("{}: what each part is worth", plain(&set.title)),
        rows: set.parts.iter().map(|part| part.row(clock)).collect(),
    };
    let blocks: Vec<_> = sets.iter().map(block).collect();
    (!blocks.is_empty()).then_some(Table { columns: COLUMNS, blocks, legend: LEGEND })
}

/// All sets of `groups` of which a part was switched off.
pub(crate) fn sets<'a>(groups: &'a [Group<'a>]) -> Vec<Set<'a>> {
    let pairs: Vec<_> =
        groups.iter().filter_map(|without| Some((without, full_set(without.variant, groups)?))).collect();
    let mut sets = Vec::new();
    for block in blocks(pairs, |(_, full)| full.variant) {
        let mut counts: Vec<_> = block.items.iter().map(|(_, full)| full.variant.cpus).collect();
        counts.dedup();
        for cpus in counts {
            let of_count = block.items.iter().filter(|(_, full)| full.variant.cpus == cpus).copied().collect();
            let parts = blocks(of_count, |(without, _)| without.variant).into_iter().flat_map(|block| block.items);
            let title = format!("{}, {cpus} vCPU{}", block.title, if cpus == 1 { "" } else { "s" });
            sets.push(Set { title, parts: parts.map(|(without, full)| Part::of(without, full)).collect() });
        }
    }
    sets
}

/// The same variant with nothing switched off; none of one that has nothing switched off itself.
fn full_set<'a>(variant: &Variant, groups: &'a [Group<'a>]) -> Option<&'a Group<'a>> {
    variant.without.as_ref()?;
    let full = Variant { without: None, ..variant.clone() };
    groups.iter().find(|group| *group.variant == full)
}

impl<'a> Part<'a> {
    fn of(without: &'a Group<'a>, full: &'a Group<'a>) -> Self {
        let (inits_without, inits_full) = (without.independent_inits(), full.independent_inits());
        let resampled = Resampled::ratio_of_medians(&inits_without, &inits_full);
        let n = inits_without.len().min(inits_full.len());
        Self {
            name: without.variant.without.as_deref().unwrap_or_default(),
            without,
            full,
            n,
            ratio: resampled.as_ref().map(|resampled| resampled.ratio),
            interval: resampled.and_then(|resampled| resampled.shown(n)),
        }
    }

    fn row(&self, clock: Clock) -> Vec<Cell> {
        let time = |group: &Group<'_>| or_none(median(&group.independent_inits()), |ns| clock.show(ns));
        let memory = |group: &Group<'_>| or_none(median(&group.memory()), bytes).text;
        vec![
            plain(self.name).into(),
            size(self.without.variant.memory_bytes).into(),
            self.n.into(),
            time(self.full),
            time(self.without),
            // What is slower without it is worth something.
            ratio(self.ratio, self.interval),
            or_none(self.interval, |interval| interval.to_string()),
            format!("{} → {}", memory(self.full), memory(self.without)).into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::groups;

    #[test]
    fn each_part_is_held_against_its_own_full_set() {
        let without = |name: Option<&str>, gib| Variant {
            without: name.map(str::to_owned),
            ..variant("flatboot", "async", gib * GIB)
        };
        // Sizes and parts in no order, one part without a full set, and a mode of which nothing was switched off.
        let variants = vec![
            without(Some("b"), 64),
            without(None, 64),
            without(Some("a"), 64),
            without(Some("b"), 1),
            without(None, 1),
            without(Some("a"), 256),
            variant("flatboot", "parallel", GIB),
        ];
        let ms = [1500, 1000, 900, 2000, 2000, 1, 1];
        let results = sweep(variants, 10, |variant, round| (ms[variant] * 1000 + u64::from(round)) * 1000);
        let groups = groups(&results);
        let sets = sets(&groups);
        assert_eq!(sets.iter().map(|set| set.title.as_str()).collect::<Vec<_>>(), ["flatboot async, 2 vCPUs"]);
        let seen: Vec<_> = sets[0]
            .parts
            .iter()
            .map(|part| (part.name, part.without.variant.memory_bytes / GIB, part.interval.and_then(Interval::differs)))
            .collect();
        assert_eq!(seen, [("b", 1, None), ("b", 64, Some(Ordering::Greater)), ("a", 64, Some(Ordering::Less))]);
        let ratio = sets[0].parts[1].ratio.unwrap();
        assert!((ratio - 1.5).abs() < 0.001, "{ratio}");
    }

    #[test]
    fn few_samples_show_nothing() {
        let variants = [None, Some("a".to_owned())]
            .map(|without| Variant { without, ..variant("flatboot", "async", GIB) })
            .to_vec();
        let results = sweep(variants, 5, |variant, _| [1_000, 9_000][variant]);
        let groups = groups(&results);
        let part = &sets(&groups)[0].parts[0];
        assert_eq!((part.n, part.interval, part.interval.and_then(Interval::differs)), (5, None, None));
    }

    #[test]
    fn a_round_of_a_fleet_is_one_sample() {
        let variants = [None, Some("a".to_owned())]
            .map(|without| Variant { without, vms: Some(20), ..variant("flatboot", "async", GIB) })
            .to_vec();
        let results = sweep(variants, 5, |variant, _| [1_000, 9_000][variant]);
        let groups = groups(&results);
        let part = &sets(&groups)[0].parts[0];
        assert_eq!((part.n, part.ratio, part.interval), (5, Some(9.0), None));
    }
}
