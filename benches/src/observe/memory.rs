// SPDX-License-Identifier: Apache-2.0
//! Host memory of a VMM.

use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

/// A process that is not stopped after this time is read as it is.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// What the host has backed for a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backed {
    /// All of it.
    pub(super) bytes: u64,
    /// What of it is transparent huge pages of anonymous memory.
    pub(super) huge: u64,
}

/// The memory that the host has backed for process `pid`, huge pages included, while the process is stopped: a running
/// guest takes more every moment. None if the process is gone.
///
/// Source: `/proc/PID/smaps_rollup` (Documentation/filesystems/proc.rst); `Rss` there leaves hugetlb pages out.
pub(super) fn while_stopped(pid: Pid) -> Option<Backed> {
    kill_process(pid, Signal::STOP).ok()?;
    wait_until_stopped(pid);
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero()));
    // Whatever could be read, it goes on.
    kill_process(pid, Signal::CONT).ok()?;
    backed(&rollup.ok()?)
}

/// A signal takes effect when the process comes out of the kernel: in the middle of an exec, say, it has no memory to speak of.
fn wait_until_stopped(pid: Pid) {
    let deadline = Instant::now() + STOP_LIMIT;
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The name before it, in parentheses, may contain anything (proc(5)).
        stat.rsplit_once(')')?.1.trim_start().chars().next()
    };
    while !matches!(state(), Some('T' | 'Z') | None) && Instant::now() < deadline {
        thread::sleep(Duration::from_micros(200));
    }
}

fn backed(rollup: &str) -> Option<Backed> {
    let field = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let huge = ["Shared_Hugetlb", "Private_Hugetlb"].into_iter().filter_map(field).sum::<u64>();
    Some(Backed { bytes: field("Rss")? + huge, huge: field("AnonHugePages").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backed_memory_is_rss_and_hugetlb() {
        let rollup = "55d0-7ffe ---p 00000000 00:00 0   [rollup]\nRss:    1000 kB\nPss:     10 kB\n\
            Pss_Anon: 5 kB\nAnonHugePages: 512 kB\nShared_Hugetlb:   0 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(backed(rollup), Some(Backed { bytes: 3048 * 1024, huge: 512 * 1024 }));
        assert_eq!(backed("Pss: 1 kB\n"), None);
    }

    #[test]
    fn own_memory_is_not_zero() {
        let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(backed(&rollup).unwrap().bytes > 64 * 1024);
    }
}
