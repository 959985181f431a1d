// SPDX-License-Identifier: Apache-2.0
//! The table of times to init, and of the memory that it took.

use crate::results::{Block as Kin, Group, blocks, is_shapes};
use crate::stats::{Summary, median, ratio};
use crate::table::{Block, Cell, Column, Table, Tone, or_none, right};
use crate::terminal::{Clock, bytes, plain, size, times};

const COLUMNS: &[Column] = &[
    right("vCPUs", 0).once(),
    right("memory", 0),
    right("n", 3),
    right("failed", 0),
    right("median", 0),
    right("p95", 4),
    right("spread", 2),
    right("growth", 1),
    right("host memory", 5),
];
const LEGEND: &str = "Time to init. p95: 95 % of the boots took no longer. spread: width of the middle half of the boots, in % of \
                      the median. growth: median over that of the smallest memory with the same vCPUs. host memory: of the \
                      VMM at init, median.";
/// Of VMs that are not booted, too.
const LEGEND_OF_STARTS: &str = "Time to init; of restored VMs until the guest answers; of resized ones from the request until the \
                                guest has done it, with memory as it is then. p95: 95 % took no longer. spread: width of the \
                                middle half, in % of the median. growth: median over that of the smallest memory with the \
                                same vCPUs. host memory: of the VMM at init or then, median.";

/// A row for each variant.
pub(crate) fn table(groups: &[Group<'_>]) -> Table {
    let clock = Clock::for_all(groups.iter().filter_map(|group| median(&group.inits())));
    let block = |kin: Kin<&Group<'_>>| Block {
        title: plain(&kin.title),
        rows: kin.items.iter().map(|group| row(group, smallest(group, &kin.items), clock)).collect(),
    };
    let blocks = blocks(groups.iter().collect(), |group| group.variant).into_iter().map(block).collect();
    let all_booted = groups.iter().all(|group| group.variant.start.is_none());
    Table { columns: COLUMNS, blocks, legend: if all_booted { LEGEND } else { LEGEND_OF_STARTS } }
}

/// Median of the smallest VM that has booted: of as many vCPUs, or of all if each size has its own count.
fn smallest(group: &Group<'_>, kin: &[&Group<'_>]) -> Option<u64> {
    let shapes = is_shapes(kin.iter().map(|one| (one.variant.cpus, one.variant.memory_bytes)));
    let comparable = kin.iter().filter(|one| shapes || one.variant.cpus == group.variant.cpus);
    let booted = comparable.filter_map(|one| Some((one.variant.memory_bytes, median(&one.inits())?)));
    booted.min().map(|(_, median)| median)
}

fn row(group: &Group<'_>, smallest: Option<u64>, clock: Clock) -> Vec<Cell> {
    let summary = Summary::of(&group.inits());
    let of = |show: &dyn Fn(&Summary) -> Option<String>| or_none(summary.as_ref().and_then(show), |text| text);
    vec![
        group.variant.cpus.into(),
        size(group.variant.memory_bytes).into(),
        group.samples.len().into(),
        if group.failed == 0 { "·".into() } else { Cell::new(group.failed.to_string(), Tone::Bad) },
        of(&|summary| Some(clock.show(summary.median))),
        of(&|summary| Some(clock.show(summary.p95))),
        of(&|summary| Some(format!("{:.1} %", summary.spread_percent()))),
        of(&|summary| ratio(summary.median, smallest?).map(times)),
        or_none(median(&group.memory()), bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::{Variant, groups};

    fn growth(shapes: &[(u16, u64)]) -> Vec<String> {
        let shape = |(cpus, gib): &(u16, u64)| Variant { cpus: *cpus, ..variant("flatboot", "serial", gib * GIB) };
        let variants: Vec<_> = shapes.iter().map(shape).collect();
        let results = sweep(variants.clone(), 3, |variant, _| variants[variant].memory_bytes);
        table(&groups(&results)).blocks[0].rows.iter().map(|row| row[7].text.clone()).collect()
    }

    #[test]
    fn growth_is_from_the_smallest_size_that_booted() {
        assert_eq!(growth(&[(2, 16), (2, 4), (2, 8), (1, 8)]), ["1.00×", "1.00×", "2.00×", "4.00×"]);
        // As VMs are sold.
        assert_eq!(growth(&[(1, 4), (2, 8), (4, 16)]), ["1.00×", "2.00×", "4.00×"]);
    }
}
