// SPDX-License-Identifier: Apache-2.0
//! The table of fleets: how soon all of their VMs had booted.

use crate::results::{Block as Kin, Group, Sample, blocks};
use crate::stats::{Summary, median, ratio};
use crate::table::{Block, Cell, Column, Table, Tone, or_none, right};
use crate::terminal::{Clock, bytes, decimals, plain, size};

const COLUMNS: &[Column] = &[
    right("vCPUs", 0).once(),
    right("memory", 0),
    right("rounds", 3),
    right("failed", 0),
    right("median", 2),
    right("p95", 1),
    right("last", 0),
    right("boots a second", 0),
    right("host memory a VM", 4),
];
const LEGEND: &str = "Fleets: VMs that are started at the same time. median, p95: time to init of each VM, from its own start. \
                      last: from the start of the fleet until its last VM reached init; boots a second: VMs that reached init, \
                      over that time; both are medians of the rounds.";

/// A row for each variant that is a fleet; none if none is.
pub(crate) fn table(groups: &[Group<'_>]) -> Option<Table> {
    let fleets: Vec<_> = groups.iter().filter(|group| group.variant.vms.is_some()).collect();
    let clock = Clock::for_all(fleets.iter().filter_map(|group| median(&of_rounds(group, last))));
    let block = |kin: Kin<&Group<'_>>| Block {
        title: format!("{}: the fleet", plain(&kin.title)),
        rows: kin.items.iter().map(|group| row(group, clock)).collect(),
    };
    let blocks: Vec<_> = blocks(fleets, |group| group.variant).into_iter().map(block).collect();
    (!blocks.is_empty()).then_some(Table { columns: COLUMNS, blocks, legend: LEGEND })
}

fn row(group: &Group<'_>, clock: Clock) -> Vec<Cell> {
    let summary = Summary::of(&group.inits());
    let of = |value: Option<u64>| or_none(value, |ns| clock.show(ns));
    vec![
        group.variant.cpus.into(),
        size(group.variant.memory_bytes).into(),
        group.by_round().len().into(),
        if group.failed == 0 { "·".into() } else { Cell::new(group.failed.to_string(), Tone::Bad) },
        of(summary.map(|summary| summary.median)),
        of(summary.map(|summary| summary.p95)),
        of(median(&of_rounds(group, last))),
        or_none(median(&of_rounds(group, per_1000_s)).and_then(|boots| ratio(boots, 1000)), |rate| {
            format!("{rate:.*}", decimals(rate))
        }),
        or_none(median(&group.memory()), bytes),
    ]
}

/// What `read` gives for the VMs of each round that reached init, ascending.
fn of_rounds(group: &Group<'_>, read: impl Fn(&[&Sample]) -> Option<u64>) -> Vec<u64> {
    let mut values: Vec<_> = group.by_round().values().filter_map(|round| read(round)).collect();
    values.sort_unstable();
    values
}

/// Nanoseconds from the fleet's start until its last VM reached init.
fn last(round: &[&Sample]) -> Option<u64> {
    round.iter().map(|sample| sample.began_ns.unwrap_or(0) + sample.init_ns).max()
}

/// VMs that reached init over the time that it took, in 1000 s.
fn per_1000_s(round: &[&Sample]) -> Option<u64> {
    Some((round.len() as u64 * 1_000_000_000_000).div_ceil(last(round)?.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::{End, Variant, groups};

    #[test]
    fn a_fleet_ends_with_its_last_vm() {
        let fleet = Variant { vms: Some(4), ..variant("flatboot", "async", GIB) };
        let mut results = sweep(vec![fleet, variant("flatboot", "async", GIB)], 3, |_, _| 1_000_000_000);
        assert_eq!(results.boots.len(), 4 * (4 + 1), "the warm-up round is a fleet too");
        for (index, boot) in results.boots.iter_mut().filter(|boot| boot.variant == 0).enumerate() {
            let End::Init(sample) = &mut boot.end else { panic!("no sample") };
            // The second of each four is started last, and one VM of the last round fails.
            sample.began_ns = Some(if index % 4 == 1 { 500_000_000 } else { 0 });
            if index == 15 {
                boot.end = End::Failed { why: "it was the last".into(), console: Vec::new() };
            }
        }
        let drawn = table(&groups(&results)).unwrap();
        let rows: Vec<Vec<_>> = drawn
            .blocks
            .iter()
            .flat_map(|block| &block.rows)
            .map(|row| row.iter().map(|cell| cell.text.clone()).collect())
            .collect();
        assert_eq!(drawn.blocks[0].title, "4 × flatboot async: the fleet");
        assert_eq!(rows, [["2", "1 GiB", "3", "1", "1.000 s", "1.000 s", "1.500 s", "2.67", "40.0 MiB"]]);
        // What is compared is the round, and the whole of it.
        assert_eq!(groups(&results)[0].independent_inits().len(), 2, "the others of the last one had its machine");
        assert_eq!(groups(&results)[0].inits().len(), 11);
    }
}
