// SPDX-License-Identifier: Apache-2.0
//! Why memory cannot be planned.

use flatboot_handoff::SECTION_SIZE;

use super::choice::{MAX_HOLES, SLOT_MAX};
use super::range::GpaRange;
use super::size::Size;
use crate::field::Field;

const SIZE: Field = Field::of("memory", "size");
const MAX: Field = Field::of("memory", "max");
const HOLES: Field = Field::of("study", "holes");

/// Why memory cannot be planned as asked, or cannot hold what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum PlanError {
    #[error(
        "{SIZE}={size:#}: must be between {min:#} and {max:#}, which is what {bits}-bit physical addresses have room for"
    )]
    TooLarge { size: Size, min: Size, max: Size, bits: u8 },
    #[error("{MAX}={most:#}: must be at most {max:#}, which is what {bits}-bit physical addresses have room for")]
    TooMuch { most: Size, max: Size, bits: u8 },
    #[error("{MAX}={most:#}: must be at most {max:#}: a VM can get {:#} more than it begins with", Size(SLOT_MAX))]
    TooMuchMore { most: Size, max: Size },
    #[error("{HOLES}={holes}: must be at most {MAX_HOLES}, the e820 map has no room for more")]
    TooManyHoles { holes: u16 },
    #[error(
        "{HOLES}={holes}: must be fewer than the whole sections of {:#} above 4 GiB, which are {sections}",
        Size(SECTION_SIZE)
    )]
    TooFewSections { holes: u16, sections: u64 },
    #[error(
        "kernel: takes guest memory {kernel}: must be inside {room}, the RAM for kernels that {SIZE}={memory:#} gives"
    )]
    Kernel { kernel: GpaRange, room: GpaRange, memory: Size },
    #[error(
        "initramfs: {size} bytes: must be at most {room}, the largest piece that the kernel leaves of {SIZE}={memory:#}"
    )]
    Initramfs { size: u64, room: u64, memory: Size },
}

impl PlanError {
    /// Whether the command line alone is wrong, whatever files there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::Kernel { .. } | Self::Initramfs { .. })
    }
}
