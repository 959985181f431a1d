// SPDX-License-Identifier: Apache-2.0
//! Room for file descriptors.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// More than a VM commonly has, and what a process commonly may have.
const ROOM: u64 = 1024;

/// Makes the kernel's table of this process's descriptors as large as it may become, while there is one thread. The table begins with
/// room for 64. With several threads each time that it grows takes a grace period of RCU (`expand_fdtable` in Linux's fs/file.c), which
/// is tens of milliseconds in the middle of a boot.
pub fn make_room() {
    let most = getrlimit(Resource::Nofile).current.map_or(ROOM, |limit| limit.min(ROOM));
    let last = i32::try_from(most.saturating_sub(1)).unwrap_or(0);
    // Where it fails, the table grows when it must. What makes it grow is closed at once; the table stays.
    let _ = eventfd(0, EventfdFlags::CLOEXEC).and_then(|any| fcntl_dupfd_cloexec(any, last));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn table() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        size.and_then(|size| size.trim().parse().ok()).unwrap()
    }

    #[test]
    fn the_table_is_as_large_as_it_may_be() {
        make_room();
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(table() >= ROOM.min(most), "{} of {most}", table());
    }
}
