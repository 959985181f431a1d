// SPDX-License-Identifier: Apache-2.0
//! What may go wrong again and again is said once in a while.

use std::time::{Duration, Instant};

/// Time from one message to the next.
const EVERY: Duration = Duration::from_secs(10);

/// Says when a fault is to be told: at once, and then not again for a while, however often it comes.
#[derive(Debug, Default)]
pub struct Complaints {
    told: Option<Instant>,
    untold: u64,
}

impl Complaints {
    /// The fault is there once more. How many there were since the last message, this one included, if it is time for one.
    pub fn count(&mut self) -> Option<u64> {
        self.count_at(Instant::now())
    }

    fn count_at(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < EVERY) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_rest_counted() {
        let start = Instant::now();
        let mut complaints = Complaints::default();
        let mut at = |millis| complaints.count_at(start + Duration::from_millis(millis));
        assert_eq!([0, 0, 9_999, 10_000, 10_001, 60_000].map(&mut at), [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
