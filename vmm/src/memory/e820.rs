// SPDX-License-Identifier: Apache-2.0
//! The e820 map: what the firmware of a PC would say about its memory.

use serde::Serialize;

use super::range::GpaRange;
use crate::layout::{ACPI, CONVENTIONAL_END, HIGH_MEMORY_START};

/// Entries that the zero page has room for (`E820_MAX_ENTRIES_ZEROPAGE` in `arch/x86/include/uapi/asm/setup_data.h`).
pub const E820_MAX_ENTRIES: usize = 128;

/// Entries that the low range of RAM takes: below the legacy hole, the ACPI tables, from 1 MiB up.
pub(super) const E820_LOW_ENTRIES: usize = 3;

/// What a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum E820Kind {
    /// `E820_TYPE_RAM`, usable memory.
    Ram = 1,
    /// `E820_TYPE_RESERVED`.
    Reserved = 2,
}

/// One entry of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct E820Entry {
    /// Where.
    #[serde(flatten)]
    pub range: GpaRange,
    /// What.
    pub kind: E820Kind,
}

/// The map of a VM with that RAM, sorted; the first range is the low one, from 0 past 1 MiB.
pub(super) fn e820(ram: &[GpaRange]) -> Vec<E820Entry> {
    let entry = |range, kind| E820Entry { range, kind };
    let mut map = Vec::with_capacity(ram.len() + E820_LOW_ENTRIES);
    if let Some((low, high)) = ram.split_first() {
        map.push(entry(GpaRange::new(low.start(), CONVENTIONAL_END), E820Kind::Ram));
        map.push(entry(ACPI.into(), E820Kind::Reserved));
        map.push(entry(GpaRange::new(HIGH_MEMORY_START, low.end()), E820Kind::Ram));
        map.extend(high.iter().map(|range| entry(*range, E820Kind::Ram)));
    }
    map
}
