// SPDX-License-Identifier: Apache-2.0
//! Totals of nodes, read again and again while memory is filled.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::files;
use crate::memory::{meminfo_kib, node_meminfo_kib};
use crate::outcome::Outcome;

const NODE: &str = "/sys/devices/system/node/node0/meminfo";
/// `MemFree` may fall by what others allocate meanwhile, and rise by what they free: an eighth of a section, in KiB.
const APART_KIB: u64 = 16 << 10;

/// Reads node 0's totals as often as can be until nothing is deferred, at most `seconds`: `MemTotal` is always the same, and
/// `MemFree` is what it was, as filling memory uses none.
pub(crate) fn steady(seconds: &str) -> Outcome {
    let limit = seconds.parse().map(Duration::from_secs);
    let limit = limit.map_err(|_| format!("steady={seconds}: expected a number of seconds"))?;
    let begin = Instant::now();
    let mut seen = Seen::default();
    let deferred_first = deferred()?;
    while begin.elapsed() < limit {
        let text = files::text(NODE)?;
        let kib = |name| node_meminfo_kib(&text, name).ok_or_else(|| format!("{NODE}: no {name}"));
        seen.add(kib("MemTotal")?, kib("MemFree")?);
        if seen.reads % 16 == 0 && deferred()? == 0 {
            break;
        }
    }
    let report = json!({
        "reads": seen.reads, "total_kib": [seen.total.0, seen.total.1], "free_kib": [seen.free.0, seen.free.1],
        "deferred_first_kib": deferred_first, "deferred_last_kib": deferred()?,
    });
    Ok((seen.is_steady(), report))
}

fn deferred() -> Result<u64, String> {
    Ok(meminfo_kib(&files::text("/proc/meminfo")?, "MemDeferred").unwrap_or(0))
}

/// How many reads, and the least and the most that they showed.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    total: (u64, u64),
    free: (u64, u64),
}

impl Seen {
    fn add(&mut self, total: u64, free: u64) {
        if self.reads == 0 {
            (self.total, self.free) = ((total, total), (free, free));
        }
        let widen = |seen: (u64, u64), now: u64| (seen.0.min(now), seen.1.max(now));
        (self.total, self.free) = (widen(self.total, total), widen(self.free, free));
        self.reads += 1;
    }

    fn is_steady(&self) -> bool {
        self.reads > 1 && self.total.0 == self.total.1 && self.free.1 - self.free.0 <= APART_KIB
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_steady() {
        let steady = |reads: &[(u64, u64)]| {
            let mut seen = Seen::default();
            for (total, free) in reads {
                seen.add(*total, *free);
            }
            seen.is_steady()
        };
        assert!(steady(&[(100, 50), (100, 50 + APART_KIB)]));
        assert!(!steady(&[(100, 50)]), "read once");
        assert!(!steady(&[(100, 50), (104, 50), (100, 50)]));
        assert!(!steady(&[(100, 50), (100, 51 + APART_KIB)]));
    }
}
