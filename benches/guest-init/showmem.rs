// SPDX-License-Identifier: Apache-2.0
//! The report that the kernel makes of memory when it runs out of it, or when it is asked to.

use std::fs;

use serde_json::json;

use crate::outcome::Outcome;
use crate::{kernel, report};

const TRIGGER: &str = "/proc/sysrq-trigger";
/// The first line of the report.
const FIRST: &str = "Mem-Info:";
/// Between a zone's count and its lists, processors may take and give back a few blocks: 4 MiB.
const APART_KIB: u64 = 4 << 10;
/// They may also give back what their own lists hold, tens of MiB at once, as any kernel lets them do for seconds after much
/// memory was freed. So that a report which it falls into is not the last word, the kernel may make so many.
const REPORTS: usize = 5;

/// Has the report made: the blocks of every zone add up to what is free in it.
pub(crate) fn show_mem() -> Outcome {
    let mut outcome = report_once()?;
    for _ in 1..REPORTS {
        if outcome.0 {
            break;
        }
        outcome = report_once()?;
    }
    Ok(outcome)
}

fn report_once() -> Outcome {
    report::drain();
    fs::write(TRIGGER, "m").map_err(|error| format!("{TRIGGER}: {error}"))?;
    let log = kernel::log()?;
    let start = log.iter().rposition(|line| line.contains(FIRST)).ok_or("no report in the kernel log")?;
    let said = &log[start..];
    let zones: Vec<_> = said.iter().filter_map(|line| zone(line, said)).collect();
    let agree = zones.iter().all(|(_, free, lists)| free.abs_diff(*lists) <= APART_KIB);
    let shown = zones.iter().map(|(name, free, lists)| json!([name, free, lists])).collect::<Vec<_>>();
    let seen = json!({ "zones": shown, "lines": said });
    Ok((agree && !zones.is_empty(), seen))
}

/// Of a zone's line: its name, KiB that are free, and the sum of its blocks, which is in a later line.
fn zone(line: &str, report: &[String]) -> Option<(String, u64, u64)> {
    let (name, rest) = line.split_once(" free:")?;
    let free = rest.split("kB").next()?.parse().ok()?;
    let lists = report.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    let sum = lists.rsplit_once("= ")?.1.strip_suffix("kB")?.parse().ok()?;
    Some((name.to_owned(), free, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_lists_of_a_zone() {
        let report = [
            "active_anon:1 free:7 free_pcp:1 free_cma:0",
            "Node 0 Normal free:120kB boost:0kB min:4kB",
            "lowmem_reserve[]: 0 0",
            "Node 0 DMA32: 1*4kB (U) = 4kB",
            "Node 0 Normal: 1*4kB (U) 1*8kB (M) 108kB deferred = 120kB",
        ]
        .map(str::to_owned);
        let zones: Vec<_> = report.iter().filter_map(|line| zone(line, &report)).collect();
        assert_eq!(zones, [("Node 0 Normal".to_owned(), 120, 120)]);
    }
}
