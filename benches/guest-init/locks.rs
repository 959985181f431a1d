// SPDX-License-Identifier: Apache-2.0
//! How often the kernel's locks were taken, where it counts that.

use crate::files;

/// Of those of a name, as Documentation/locking/lockstat.rst has it; nothing if the kernel does not count.
pub(crate) fn acquisitions(name: &str) -> Option<u64> {
    of(&files::text("/proc/lock_stat").ok()?, name)
}

fn of(text: &str, name: &str) -> Option<u64> {
    let numbers = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    numbers.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_known_by_its_whole_name() {
        let text = "lock_stat version 0.4\n\
             &zone->lock/1:  1 1 0.1 0.2 0.3 0.1 2 3 0.1 0.5 9.0 0.2\n\
             &zone->lock:  5 6 0.10 20.00 30.00 1.00 71 81234 0.05 50.00 900.00 0.20\n";
        assert_eq!((of(text, "&zone->lock"), of(text, "&pcp->lock")), (Some(81234), None));
    }
}
