// SPDX-License-Identifier: Apache-2.0
//! Who backs what.

use crate::memory::{GpaRange, guest};

/// Splits `ranges` into `count` shares of about equal size, cut at huge-page boundaries: no two threads back one huge page.
pub(super) fn shares(ranges: &[GpaRange], count: usize) -> Vec<Vec<GpaRange>> {
    let total: u64 = ranges.iter().map(|range| range.length()).sum();
    let quota = total.div_ceil(count.max(1) as u64).next_multiple_of(guest::HUGE_PAGE).max(guest::HUGE_PAGE);
    let mut out = vec![Vec::new(); count];
    let (mut worker, mut room) = (0, quota);
    for range in ranges {
        let mut start = range.start();
        while start < range.end() {
            let end = range.end().min((start + room).next_multiple_of(guest::HUGE_PAGE));
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
                        prop_assert!(range.start().is_multiple_of(guest::HUGE_PAGE), "a huge page is cut");
                        *last = GpaRange::new(last.start(), range.end());
                    }
                    _ => merged.push(range),
                }
            }
            prop_assert_eq!(merged, ranges);
        }
    }
}
