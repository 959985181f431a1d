// SPDX-License-Identifier: Apache-2.0
//! Ranges of guest physical addresses, and how wide those addresses are.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

/// Half-open range of guest physical addresses, `start..end`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct GpaRange {
    start: u64,
    end: u64,
}

impl GpaRange {
    /// `start..end`; empty at `start` if `end` is below it.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// `length` bytes from `start`, cut off at the end of the 64-bit address space.
    #[must_use]
    pub const fn of(start: u64, length: u64) -> Self {
        Self { start, end: start.saturating_add(length) }
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Address after the last byte.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Bytes in it.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.end - self.start
    }

    /// Whether it holds no byte.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Whether they share a byte.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end && !self.is_empty() && !other.is_empty()
    }
}

impl From<Range<u64>> for GpaRange {
    fn from(range: Range<u64>) -> Self {
        Self::new(range.start, range.end)
    }
}

impl fmt::Display for GpaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

/// How many bits a guest physical address has: 36 to 52.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct AddressWidth(u8);

impl AddressWidth {
    /// What every x86-64 processor has at least.
    pub const MIN: u8 = 36;
    /// The most that x86-64 defines.
    pub const MAX: u8 = 52;

    /// What no address is wider than.
    pub const WIDEST: Self = Self(Self::MAX);

    /// Takes what a processor reports; a number out of range (0 from one that does not say) becomes the nearest in it.
    #[must_use]
    pub fn reported(bits: u8) -> Self {
        Self(bits.clamp(Self::MIN, Self::MAX))
    }

    /// The number of bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Address after the last one.
    #[must_use]
    pub const fn end(self) -> u64 {
        1 << self.0
    }
}
