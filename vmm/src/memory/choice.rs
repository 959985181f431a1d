// SPDX-License-Identifier: Apache-2.0
//! What a user can choose of memory, beside its size: where it goes, and what the host does for it beforehand.

use serde::{Deserialize, Serialize};

use super::e820::{E820_LOW_ENTRIES, E820_MAX_ENTRIES};
use super::pages::HostPages;
use crate::field::{Field, Valued};
use crate::layout::{LOW_MEMORY_MAX, LOW_MEMORY_MAX_PC};

/// Most holes that memory can have: every part above 4 GiB is an e820 entry, and the zero page has room for only so many.
pub const MAX_HOLES: u16 = 124;

const _: () = assert!(E820_LOW_ENTRIES + MAX_HOLES as usize + 1 == E820_MAX_ENTRIES);

/// Most memory of a slot: KVM refuses one of 2^31 pages of 4 KiB or more (`KVM_MEM_MAX_NR_PAGES`), 8 TiB.
pub(super) const SLOT_MAX: u64 = 4 << 40;

/// How RAM is shared out between the addresses below and above 4 GiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Four sections below 4 GiB, the rest above: a kernel whose low zones are filled serially has little to fill.
    #[default]
    Split,
    /// Up to 3 GiB below 4 GiB, as a PC and most VMMs have it.
    Pc,
}

impl Layout {
    /// Most bytes of RAM below 4 GiB; whole pages, since they are mapped apart from the rest.
    #[must_use]
    pub const fn low_max(self, pages: HostPages) -> u64 {
        let max = match self {
            Self::Split => LOW_MEMORY_MAX,
            Self::Pc => LOW_MEMORY_MAX_PC,
        };
        max.next_multiple_of(pages.bytes())
    }
}

/// Where the host's transparent huge pages are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Switch", into = "Switch")]
pub enum Thp {
    /// Nowhere.
    Off,
    /// Where they pay: behind the kernel, the memmap's arenas, the memory that the guest's allocator has first, and all that
    /// is backed beforehand anyway.
    #[default]
    Early,
    /// Behind all memory: fewer page faults for a guest that uses it all, 2 MiB of the host's for each page touched alone.
    All,
}

/// What host memory is there before the guest runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prefault {
    /// None.
    #[default]
    Off,
    /// That of the memmap's arenas.
    Arenas,
    /// All of it.
    All,
}

/// That in JSON: what other VMMs have, too, is a switch there; the rest is a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Switch {
    Is(bool),
    Word(String),
}

impl Switch {
    /// What it says: on, off or the word.
    fn said(&self) -> &str {
        match self {
            Self::Is(true) => "on",
            Self::Is(false) => "off",
            Self::Word(word) => word,
        }
    }
}

impl From<Thp> for Switch {
    fn from(thp: Thp) -> Self {
        match thp {
            Thp::Off => Self::Is(false),
            Thp::Early => Self::Is(true),
            Thp::All => Self::Word("all".to_owned()),
        }
    }
}

impl TryFrom<Switch> for Thp {
    type Error = &'static str;

    fn try_from(switch: Switch) -> Result<Self, Self::Error> {
        match switch.said() {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::Early),
            "all" => Ok(Self::All),
            _ => Err("must be true, false or \"all\""),
        }
    }
}

impl Prefault {
    /// What asks for it.
    #[must_use]
    pub fn asked(self) -> Valued<&'static str> {
        match self {
            Self::Off => Field::of("memory", "prefault").is("off"),
            Self::All => Field::of("memory", "prefault").is("on"),
            Self::Arenas => Field::of("study", "prefault_arenas").is("on"),
        }
    }
}
