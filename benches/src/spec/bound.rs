// SPDX-License-Identifier: Apache-2.0
//! What a measured number is held to.

use std::fmt;

/// Each run of `--runs` is so many rounds where the bound is some per cent from what holds: less than single boots differ on a
/// machine that others use.
pub(super) const ROUNDS_OF_CLOSE_BOUNDS: usize = 3;
/// So many where a sweep may grow by less than [`CLOSEST`].
pub(super) const ROUNDS_OF_CLOSEST_BOUNDS: usize = 6;
pub(super) const CLOSEST: f64 = 1.05;

/// What a number must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// Whether `value` is within the bound; NaN never is.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert!(Bound::AtLeast(1.5).holds(1.5) && !Bound::AtLeast(1.5).holds(1.49));
        assert!(Bound::AtMost(1.1).holds(1.1) && !Bound::AtMost(1.1).holds(1.11));
        assert!(!Bound::AtLeast(1.0).holds(f64::NAN) && !Bound::AtMost(1.0).holds(f64::NAN));
    }
}
