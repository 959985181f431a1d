// SPDX-License-Identifier: Apache-2.0
//! Free lists of two guests that ran the same.

use serde_json::Value;

/// A block of the highest order, 10.
const LARGEST_KIB: u64 = 4 << 10;
/// Pages that one boot may hold more than another: 16 MiB, an eighth of a section. Storms have left 9 MiB more in slabs and page tables in
/// one boot than in the next; that no page is lost is what `memmap_verify` shows.
const MOST_HELD: u64 = 4096;
/// Largest blocks that one boot may have more than another: three quarters of a section.
const MOST_BROKEN: u64 = 24;

/// What `lists` reported.
#[derive(Debug, Clone)]
pub(super) struct Lists {
    /// Free blocks by order.
    orders: Vec<u64>,
    /// Free pages that processors keep for themselves.
    per_cpu: u64,
    /// Free pages, those included.
    free: u64,
}

impl Lists {
    pub(super) fn of(report: &Value) -> Self {
        let orders = report["orders"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        let per_cpu = report["per_cpu_pages"].as_u64().unwrap_or(0);
        Self { orders, per_cpu, free: report["pages"].as_u64().unwrap_or(0) + per_cpu }
    }

    /// Blocks of the highest order, with those that the pages of the processors would make: there are tens of MiB of them,
    /// more in one boot than in another.
    fn largest(&self) -> u64 {
        self.orders.last().copied().unwrap_or(0) + self.per_cpu * 4 / LARGEST_KIB
    }
}

/// Free memory is as much, and in blocks as large.
///
/// Not to the page: each boot, the kernel and init hold a little more or less, and each page in use keeps one block from being
/// whole. What is looked for is larger. Memory that was lost is at least a page block of each section. Memory that was freed
/// piece by piece without being merged shows in at least one section, which has 32 of the largest blocks.
pub(super) fn agree(lists: &Lists, expected: &Lists, deferred_kib: u64) -> Result<(), String> {
    let free = lists.free + deferred_kib / 4;
    let largest = lists.largest() + deferred_kib / LARGEST_KIB;
    let within = |what: &str, is: u64, should: u64, bound: u64| {
        let apart = is.abs_diff(should);
        if apart <= bound { Ok(()) } else { Err(format!("{what}: {is} instead of {should}, {bound} more or less")) }
    };
    within("free pages", free, expected.free, MOST_HELD)?;
    within("largest free blocks", largest, expected.largest(), MOST_BROKEN)
}
