// SPDX-License-Identifier: Apache-2.0
//! Signals that whoever runs the tests has them ignore, as nohup(1) and the `&` of a script do: what they start ignores them, too.

use std::fs;

/// Whether signal `number` is ignored here.
pub(crate) fn is_ignored(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (number - 1) & 1 == 1)
}
