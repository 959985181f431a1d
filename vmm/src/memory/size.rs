// SPDX-License-Identifier: Apache-2.0
//! Sizes in bytes, and the size of a VM's memory.

use std::fmt;

/// A number of bytes, shown in the largest binary unit that gives a whole number: `5124 MiB`, or in the syntax of the
/// command line with `{:#}`: `5124M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u32, &str, &str); 4] = [(40, "TiB", "T"), (30, "GiB", "G"), (20, "MiB", "M"), (10, "KiB", "K")];

        let unit = UNITS.iter().find(|(shift, ..)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        let &(shift, long, short) = unit.unwrap_or(&(0, "B", ""));
        let number = self.0 >> shift;
        f.pad(&if f.alternate() { format!("{number}{short}") } else { format!("{number} {long}") })
    }
}

/// How much RAM a VM has: at least [`MemorySize::MIN`], in whole MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(u64);

/// Why a number of bytes is no [`MemorySize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemorySizeError {
    /// Less than any kernel needs.
    #[error("must be at least {:#}", Size(MemorySize::MIN))]
    TooSmall,
    /// Not a whole number of MiB.
    #[error("must be a multiple of {:#}", Size(MemorySize::STEP))]
    NotAMultiple,
}

impl MemorySize {
    /// Below this, today's kernels with an initramfs do not come up.
    pub const MIN: u64 = 64 << 20;
    /// Sizes are multiples of this.
    pub const STEP: u64 = 1 << 20;

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for MemorySize {
    /// That of a VM of which nothing is said.
    fn default() -> Self {
        Self(512 << 20)
    }
}

impl TryFrom<u64> for MemorySize {
    type Error = MemorySizeError;

    fn try_from(bytes: u64) -> Result<Self, MemorySizeError> {
        match bytes {
            ..Self::MIN => Err(MemorySizeError::TooSmall),
            _ if !bytes.is_multiple_of(Self::STEP) => Err(MemorySizeError::NotAMultiple),
            _ => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_whole_unit() {
        for (bytes, long, short) in [
            (0, "0 B", "0"),
            (1000, "1000 B", "1000"),
            (639 << 10, "639 KiB", "639K"),
            (64 << 20, "64 MiB", "64M"),
            ((5 << 30) + (4 << 20), "5124 MiB", "5124M"),
            (64 << 30, "64 GiB", "64G"),
            (16 << 40, "16 TiB", "16T"),
        ] {
            assert_eq!(Size(bytes).to_string(), long);
            assert_eq!(format!("{:#}", Size(bytes)), short);
        }
        assert_eq!(format!("{:>9}|", Size(4096)), "    4 KiB|");
    }

    #[test]
    fn memory_sizes_are_whole_mebibytes_from_64() {
        for bytes in [0, 1, (64 << 20) - 1] {
            assert_eq!(MemorySize::try_from(bytes), Err(MemorySizeError::TooSmall));
        }
        assert_eq!(MemorySize::try_from((64 << 20) + 4096), Err(MemorySizeError::NotAMultiple));
        assert_eq!(MemorySize::try_from(65 << 20).map(MemorySize::bytes), Ok(65 << 20));
    }
}
