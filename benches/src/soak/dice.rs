// SPDX-License-Identifier: Apache-2.0
//! Choices that a seed makes.

use fastrand::Rng;

/// The same choices for the same seed.
pub(super) struct Dice(Rng);

impl Dice {
    pub(super) fn of(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// One of `items`, of which there must be at least one.
    pub(super) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.0.usize(..items.len())]
    }

    /// Something of `range`.
    pub(super) fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.0.u64(range)
    }

    /// Yes in `percent` of cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.within(1..=100) <= percent
    }

    /// A moment in milliseconds. Half of them fall into the VMM's own start, which is short.
    pub(super) fn moment(&mut self) -> u64 {
        let latest = if self.chance(50) { 400 } else { 5000 };
        self.within(0..=latest)
    }
}
