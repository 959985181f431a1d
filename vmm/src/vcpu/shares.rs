// SPDX-License-Identifier: Apache-2.0
//! Who backs what.

use std::collections::BTreeSet;

use crate::memory::{GpaRange, HUGE_PAGE};

/// Where the thread of a vCPU runs: on these CPUs of the host, or on all.
pub type Affinity = Option<BTreeSet<u16>>;

/// What the thread of a vCPU does before it runs the guest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Where it runs.
    pub affinity: Affinity,
    /// What it backs first.
    pub early: Vec<GpaRange>,
    /// What it backs when the boot CPU starts.
    pub ahead: Vec<GpaRange>,
}

/// What the thread of each vCPU does, of as many as `nodes`, which says on which of the guest's nodes each is. Each range is backed
/// by threads of the node that it lies on, or by all if that has none: where nobody has bound guest memory to a node of the host, it
/// comes from the one that the thread runs on. The boot CPU's backs nothing ahead.
pub fn tasks(
    affinities: impl Iterator<Item = Affinity>,
    nodes: &[u32],
    early: &[(GpaRange, u32)],
    ahead: &[(GpaRange, u32)],
) -> Vec<Task> {
    let all = || (0..nodes.len()).zip(nodes);
    let others = |first: usize, node: u32| -> Vec<usize> {
        let of_node: Vec<_> = all().skip(first).filter(|(_, of)| **of == node).map(|(index, _)| index).collect();
        if of_node.is_empty() { all().skip(first).map(|(index, _)| index).collect() } else { of_node }
    };
    let mut tasks: Vec<_> = affinities.map(|affinity| Task { affinity, ..Task::default() }).collect();
    let mut share_out = |ranges: &[(GpaRange, u32)], first: usize, list: fn(&mut Task) -> &mut Vec<GpaRange>| {
        for node in ranges.iter().map(|(_, node)| *node).collect::<BTreeSet<_>>() {
            let own: Vec<_> = ranges.iter().filter(|(_, of)| *of == node).map(|(range, _)| *range).collect();
            let workers = others(first, node);
            for (worker, share) in workers.iter().zip(shares(&own, workers.len())) {
                if let Some(task) = tasks.get_mut(*worker) {
                    list(task).extend(share);
                }
            }
        }
    };
    share_out(early, 0, |task| &mut task.early);
    share_out(ahead, 1, |task| &mut task.ahead);
    tasks
}

/// Splits `ranges` into `count` shares of about equal size, cut at huge-page boundaries: no two threads back one huge page.
fn shares(ranges: &[GpaRange], count: usize) -> Vec<Vec<GpaRange>> {
    let total: u64 = ranges.iter().map(|range| range.length()).sum();
    let quota = total.div_ceil(count.max(1) as u64).next_multiple_of(HUGE_PAGE).max(HUGE_PAGE);
    let mut out = vec![Vec::new(); count];
    let (mut worker, mut room) = (0, quota);
    for range in ranges {
        let mut start = range.start();
        while start < range.end() {
            let end = range.end().min((start + room).next_multiple_of(HUGE_PAGE));
            if let Some(share) = out.get_mut(worker) {
                share.push(GpaRange::new(start, end));
            }
            room = room.saturating_sub(end - start);
            start = end;
            if room == 0 {
                (worker, room) = (worker + 1, quota);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_cover_everything_once(
            sizes in proptest::collection::vec(1u64..64, 0..8),
            count in 1usize..=512,
        ) {
            let mut at = 0;
            let ranges: Vec<_> = sizes.iter().map(|pages| {
                let range = GpaRange::of(at, pages * 0x10_0000);
                    at = range.end() + 0x20_0000;
                range
            }).collect();
            let shares = shares(&ranges, count);
            prop_assert_eq!(shares.len(), count);
            let mut all: Vec<_> = shares.into_iter().flatten().collect();
            all.sort_by_key(|range| range.start());
            let mut merged: Vec<GpaRange> = Vec::new();
            for range in all {
                match merged.last_mut() {
                    Some(last) if last.end() == range.start() => {
                        prop_assert!(range.start().is_multiple_of(HUGE_PAGE), "a huge page is cut");
                        *last = GpaRange::new(last.start(), range.end());
                    }
                    _ => merged.push(range),
                }
            }
            prop_assert_eq!(merged, ranges);
        }
    }

    const MIB: u64 = 1 << 20;

    fn on(node: u32, start: u64, end: u64) -> (GpaRange, u32) {
        (GpaRange::new(start * MIB, end * MIB), node)
    }

    fn told(nodes: &[u32], early: &[(GpaRange, u32)], ahead: &[(GpaRange, u32)]) -> Vec<Task> {
        tasks(nodes.iter().map(|_| None), nodes, early, ahead)
    }

    #[test]
    fn memory_is_backed_by_threads_of_its_node() {
        let memory = [on(0, 0, 8), on(1, 16, 20), on(2, 32, 36)];
        let tasks = told(&[0, 0, 1, 0], &memory, &memory);
        let range = |start, end| on(0, start, end).0;
        let early: Vec<_> = tasks.iter().map(|task| task.early.clone()).collect();
        // Nobody is on node 2, so all take part.
        assert_eq!(
            early,
            [vec![range(0, 4), range(32, 34)], vec![range(4, 8), range(34, 36)], vec![range(16, 20)], vec![],]
        );
        let ahead: Vec<_> = tasks.iter().map(|task| task.ahead.clone()).collect();
        assert_eq!(
            ahead,
            [vec![], vec![range(0, 4), range(32, 34)], vec![range(16, 20), range(34, 36)], vec![range(4, 8)],]
        );
    }

    #[test]
    fn one_vcpu_backs_nothing_ahead() {
        let tasks = told(&[0], &[on(0, 0, 2)], &[on(0, 2, 4)]);
        assert_eq!(tasks, [Task { early: vec![on(0, 0, 2).0], ..Task::default() }]);
    }
}
