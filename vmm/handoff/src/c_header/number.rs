// SPDX-License-Identifier: Apache-2.0
//! Numbers as C has them.

use core::fmt::{self, Display, Formatter, LowerHex};

/// A number that fits an int.
pub(super) struct Hex<T>(pub(super) T);

impl<T: LowerHex> Display for Hex<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address or a size, 64 bits wide in arithmetic.
pub(super) struct Address(pub(super) u64);

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}ULL", self.0)
    }
}
