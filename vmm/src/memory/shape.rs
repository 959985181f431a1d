// SPDX-License-Identifier: Apache-2.0
//! Where RAM is in the guest's physical address space.

use std::iter;

use flatboot_handoff::SECTION_SIZE;
use serde::{Deserialize, Serialize};

use super::e820::{E820_LOW_ENTRIES, E820_MAX_ENTRIES};
use super::pages::HostPages;
use super::plan::{PlanError, PlanInput, Study};
use super::range::{AddressWidth, GpaRange};
use super::size::{MemorySize, Size};
use super::zone::{Slot, Zone};
use crate::layout::{ABOVE_4G, LOW_MEMORY_MAX, LOW_MEMORY_MAX_PC};

/// Most holes that memory can have: every part above 4 GiB is an e820 entry, and the zero page has room for only so many.
pub const MAX_HOLES: u16 = 124;

const _: () = assert!(E820_LOW_ENTRIES + MAX_HOLES as usize + 1 == E820_MAX_ENTRIES);

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

/// RAM as slots: the low ones from 0, then those above 4 GiB, each of whole sections but the last one's end.
pub(super) fn slots(input: &PlanInput) -> Result<Vec<Slot>, PlanError> {
    check_width(input, input.address_width)?;
    if !input.zones.is_empty() {
        return Ok(placed(&input.zones, input.study.layout));
    }
    let size = input.size.bytes();
    let low = size.min(input.study.layout.low_max(input.backing.pages));
    let ranges = iter::once(GpaRange::new(0, low)).chain(high(size - low, input.study.holes)?);
    Ok(ranges.map(|range| Slot::new(range, input.backing)).collect())
}

pub(super) fn check_width(input: &PlanInput, width: AddressWidth) -> Result<(), PlanError> {
    let &PlanInput { size, backing, study: Study { holes, layout, .. }, .. } = input;
    let low = match input.zones[..] {
        [] => layout.low_max(backing.pages),
        ref zones => placed(zones, layout).iter().map(|slot| slot.range).filter(is_low).map(GpaRange::length).sum(),
    };
    // No overflow, no underflow: at most 124 holes of 128 MiB, and the narrowest width leaves 60 GiB above 4 GiB.
    let max = width.end() - ABOVE_4G - u64::from(holes.min(MAX_HOLES)) * SECTION_SIZE + low;
    if size.bytes() <= max {
        return Ok(());
    }
    Err(PlanError::TooLarge { size, min: Size(MemorySize::MIN), max: Size(max), bits: width.bits() })
}

const fn is_low(range: &GpaRange) -> bool {
    range.start() < ABOVE_4G
}

/// Zones one after the other: below 4 GiB as long as whole pages of them fit there, then from 4 GiB up.
fn placed(zones: &[Zone], layout: Layout) -> Vec<Slot> {
    let most = layout.low_max(zones.first().map_or(HostPages::Base, |zone| zone.backing.pages));
    let (mut low, mut next) = (0, 0);
    let mut slots = Vec::with_capacity(zones.len() + 1);
    for &Zone { size, node, backing } in zones {
        let mut add = |start, length| {
            if length > 0 {
                slots.push(Slot { range: GpaRange::of(start, length), node, backing });
            }
        };
        // Nothing goes below again once something is above.
        let room = if next == 0 { most - low } else { 0 };
        let below = size.min(room - room % backing.pages.bytes());
        add(low, below);
        low += below;
        if below < size {
            next = next.max(ABOVE_4G);
            add(next, size - below);
            // A size that is too large for any addresses is found to be so by its slots.
            next = next.saturating_add(size - below);
        }
    }
    slots
}

/// Cuts `length` bytes from 4 GiB up into `holes` + 1 parts, as equal as whole sections allow, one section apart.
fn high(length: u64, holes: u16) -> Result<Vec<GpaRange>, PlanError> {
    let parts = u64::from(holes) + 1;
    let sections = length / SECTION_SIZE;
    if holes > MAX_HOLES {
        return Err(PlanError::TooManyHoles { holes });
    }
    if holes > 0 && sections < parts {
        return Err(PlanError::TooFewSections { holes, sections });
    }
    if length == 0 {
        return Ok(Vec::new());
    }

    let mut next = ABOVE_4G;
    let mut left = length;
    Ok((0..parts)
        .map(|part| {
            let longer = u64::from(part < sections % parts);
            // The last part takes the tail that is no whole section.
            let length = if part + 1 == parts { left } else { (sections / parts + longer) * SECTION_SIZE };
            let range = GpaRange::of(next, length);
            left -= length;
            next = range.end() + SECTION_SIZE;
            range
        })
        .collect())
}
