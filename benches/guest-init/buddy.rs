// SPDX-License-Identifier: Apache-2.0
//! The allocator's free lists.

use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::{files, memory};

/// Before it is given up that nothing changes.
const LOOKS: usize = 100;
/// Pages that a look itself may take or give back.
const OWN: u64 = 64;

/// Merges what is free as far as the kernel can, then shows it: free blocks of all zones by order, in `orders`; pages that processors keep for themselves, in `per_cpu_pages`.
pub(crate) fn lists() -> Outcome {
    memory::drop_and_compact()?;
    let (orders, per_cpu) = at_rest()?;
    let pages: u64 = (0..).zip(&orders).map(|(order, blocks)| blocks << order).sum();
    let report = json!({ "orders": orders, "pages": pages, "per_cpu_pages": Value::from(per_cpu) });
    Ok((pages > 0, report))
}

/// Both at a time at which no processor gives back what it keeps: else its pages are in neither, or in both.
fn at_rest() -> Result<(Vec<u64>, u64), String> {
    let read = || files::text("/proc/zoneinfo").map(|text| per_cpu_pages(&text));
    for _ in 0..LOOKS {
        let before = read()?;
        let orders = orders(&files::text("/proc/buddyinfo")?);
        if read()?.abs_diff(before) <= OWN {
            return Ok((orders, before));
        }
    }
    Err(format!("what processors keep changes all the time: {LOOKS} looks"))
}

/// `Node 0, zone    DMA32      1      2 …`: summed over the lines.
fn orders(buddyinfo: &str) -> Vec<u64> {
    let mut orders = Vec::new();
    for line in buddyinfo.lines() {
        let counts = line.split_whitespace().skip(4).filter_map(|word| word.parse::<u64>().ok());
        for (order, count) in counts.enumerate() {
            if orders.len() <= order {
                orders.push(0);
            }
            orders[order] += count;
        }
    }
    orders
}

fn per_cpu_pages(zoneinfo: &str) -> u64 {
    let counts = zoneinfo.lines().filter_map(|line| line.trim_start().strip_prefix("count:"));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_summed() {
        let text = "Node 0, zone    DMA32      1      2      0\nNode 0, zone   Normal     10      0      5 \n";
        assert_eq!(orders(text), [11, 2, 5]);
        assert_eq!(
            per_cpu_pages(
                "    cpu: 0\n              count:    12\n              high:     9\n    cpu: 1\n              count: 3\n"
            ),
            15
        );
    }
}
