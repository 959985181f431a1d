// SPDX-License-Identifier: Apache-2.0
//! What a process has of the host.

use std::fs;
use std::path::PathBuf;

/// What an allocator may keep.
const ALLOCATOR_KIB: u64 = 1024;

/// Descriptors, threads and memory.
#[derive(Debug)]
pub(crate) struct Usage {
    descriptors: usize,
    threads: usize,
    pub(crate) resident_kib: u64,
}

impl Usage {
    /// That of process `pid` now.
    pub(crate) fn of(pid: u32) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let count = |directory: &str| fs::read_dir(process.join(directory)).unwrap().count();
        let status = fs::read_to_string(process.join("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident_kib = resident.trim().trim_end_matches(" kB").parse().unwrap();
        Self { descriptors: count("fd"), threads: count("task"), resident_kib }
    }

    /// Whether it is no more than `before`, but for what an allocator keeps.
    pub(crate) fn is_back_at(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.resident_kib < before.resident_kib + ALLOCATOR_KIB
    }
}
