// SPDX-License-Identifier: Apache-2.0
//! Boots that are over.

use std::fmt;

/// How many passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Boots that went as planned.
    pub passed: u64,
    /// Boots that did not.
    pub failed: u64,
}

impl Tally {
    /// Counts one more.
    pub(super) fn count(&mut self, passed: bool) {
        *if passed { &mut self.passed } else { &mut self.failed } += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_where_it_belongs() {
        let mut tally = Tally::default();
        for passed in [true, false, true] {
            tally.count(passed);
        }
        assert_eq!(tally.to_string(), "2 passed, 1 failed");
    }
}
