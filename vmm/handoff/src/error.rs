// SPDX-License-Identifier: Apache-2.0
//! Every way in which a table can be wrong.

use core::fmt;

use crate::wire::{ARENA_LEN, HEADER_LEN, MAGIC, REGION_LEN, VERSION};
use crate::{ADDRESS_END, ARENA_ALIGN, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, SECTION_SIZE};

/// Which entry of a table, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The region of that index.
    Region(usize),
    /// The arena of that index.
    Arena(usize),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region(index) => write!(f, "region {index}"),
            Self::Arena(index) => write!(f, "arena {index}"),
        }
    }
}

/// The rule that a table breaks: the rules, in the order in which they are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum TableError {
    #[error("{bytes} bytes: must be at least {needed}")]
    Truncated { bytes: usize, needed: usize },
    #[error("magic {0:#x}: must be {MAGIC:#x} (\"FLATBOOT\")")]
    Magic(u64),
    #[error("version {0}: must be {VERSION}")]
    Version(u32),
    #[error("header length {0}: must be {HEADER_LEN}")]
    HeaderLength(u32),
    #[error("reserved field {0:#x}: must be 0")]
    Reserved(u64),
    #[error("{0} regions: must be 1 to {MAX_REGIONS}")]
    RegionCount(usize),
    #[error("{0} arenas: must be at most {MAX_ARENAS}")]
    ArenaCount(usize),
    #[error("length {length}: must be {expected} ({HEADER_LEN} + {REGION_LEN} a region + {ARENA_LEN} an arena)")]
    Length { length: u32, expected: usize },
    #[error("CRC-32C {stored:#010x}: must be {computed:#010x}")]
    Crc { stored: u32, computed: u32 },
    #[error("arena {index}: reserved field {reserved:#x}: must be 0")]
    ArenaReserved { index: usize, reserved: u32 },

    #[error("{0}: length 0: must not be empty")]
    Empty(Entry),
    #[error("{entry}: base {base:#x}, length {length:#x}: must end at or below {ADDRESS_END:#x}")]
    End { entry: Entry, base: u64, length: u64 },
    #[error("{entry}: base {base:#x}: must not be below the end of the one before, {end:#x}")]
    Order { entry: Entry, base: u64, end: u64 },

    #[error("region {index}: flags {flags:#x}: must have no bit outside {known:#x}")]
    Flags { index: usize, flags: u32, known: u32 },
    #[error("region {index}: base {base:#x}, length {length:#x}: must be multiples of {PAGE_SIZE:#x}")]
    PageAlignment { index: usize, base: u64, length: u64 },
    #[error("region {index}: flags {flags:#x}: a held region must have no flag but {held:#x}")]
    HeldFlags { index: usize, flags: u32, held: u32 },
    #[error(
        "region {index}: base {base:#x}, length {length:#x}: must be multiples of {SECTION_SIZE:#x}, as it is held"
    )]
    HeldAlignment { index: usize, base: u64, length: u64 },
    #[error("region {index}: follows a held region: must be held, too")]
    HeldOrder { index: usize },
    #[error(
        "region {index}: base {base:#x}, length {length:#x}: must be multiples of {SECTION_SIZE:#x} unless it is node {node}'s first or last"
    )]
    SectionAlignment { index: usize, base: u64, length: u64, node: u32 },
    #[error("region {index}: shares a section with the one of node {node} before it: must begin in another section")]
    SharedSection { index: usize, node: u32 },

    #[error("arena {index}: base {base:#x}, length {length:#x}: must be multiples of {ARENA_ALIGN:#x}")]
    ArenaAlignment { index: usize, base: u64, length: u64 },
    #[error(
        "arena {index}: {base:#x} to {end:#x}, node {node}: must be inside one region of its node that is not held"
    )]
    Outside { index: usize, base: u64, end: u64, node: u32 },

    #[error("buffer of {bytes} bytes: must hold {needed}")]
    Buffer { bytes: usize, needed: usize },
}
