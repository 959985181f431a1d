// SPDX-License-Identifier: Apache-2.0
//! Host memory of a VMM.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Bytes of memory that the host has backed for process `pid`, huge pages included, while the process is stopped: a running
/// guest takes more every moment. None if the process is gone.
///
/// Source: `/proc/PID/smaps_rollup` (Documentation/filesystems/proc.rst); `Rss` there leaves hugetlb pages out.
pub(super) fn while_stopped(pid: Pid) -> Option<u64> {
    kill_process(pid, Signal::STOP).ok()?;
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero()));
    // Whatever could be read, it goes on.
    kill_process(pid, Signal::CONT).ok()?;
    backed(&rollup.ok()?)
}

fn backed(rollup: &str) -> Option<u64> {
    let field = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let huge = ["Shared_Hugetlb", "Private_Hugetlb"].into_iter().filter_map(field).sum::<u64>();
    Some(field("Rss")? + huge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backed_memory_is_rss_and_hugetlb() {
        let rollup = "55d0-7ffe ---p 00000000 00:00 0   [rollup]\nRss:    1000 kB\nPss:     10 kB\n\
            Pss_Anon: 5 kB\nShared_Hugetlb:   0 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(backed(rollup), Some(3048 * 1024));
        assert_eq!(backed("Pss: 1 kB\n"), None);
    }

    #[test]
    fn own_memory_is_not_zero() {
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(backed(&rollup).unwrap() > 64 * 1024);
    }
}
