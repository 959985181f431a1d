// SPDX-License-Identifier: Apache-2.0
//! Where RAM is in the guest's physical address space.

use flatboot_handoff::SECTION_SIZE;

use super::choice::{Layout, MAX_HOLES, SLOT_MAX};
use super::error::PlanError;
use super::input::PlanInput;
use super::pages::HostPages;
use super::range::{AddressWidth, GpaRange};
use super::size::{MemorySize, Size};
use super::zone::{Slot, Zone};
use crate::layout::ABOVE_4G;

/// RAM as slots: the low ones from 0, then those above 4 GiB, each of whole sections but the last one's end. None of it is beyond
/// addresses of `width`.
pub(super) fn slots(input: &PlanInput, width: AddressWidth) -> Result<Vec<Slot>, PlanError> {
    // Parts are cut from what is all of it, not from each other.
    let holes = if input.zones.len() > 1 { 0 } else { input.study.holes };
    let slots = placed(&input.zones, input.study.layout, holes)?;
    let low: u64 = slots.iter().map(|slot| slot.range).filter(is_low).map(GpaRange::length).sum();
    // No overflow, no underflow: at most 124 holes of 128 MiB, and the narrowest width leaves 60 GiB above 4 GiB.
    let max = width.end() - ABOVE_4G - u64::from(holes) * SECTION_SIZE + low;
    let size = input.size();
    if size.0 <= max {
        return Ok(slots);
    }
    Err(PlanError::TooLarge { size, min: Size(MemorySize::MIN), max: Size(max), bits: width.bits() })
}

const fn is_low(range: &GpaRange) -> bool {
    range.start() < ABOVE_4G
}

/// Zones one after the other: below 4 GiB as long as whole pages of them fit there, then from 4 GiB up, with `holes`.
fn placed(zones: &[Zone], layout: Layout, holes: u16) -> Result<Vec<Slot>, PlanError> {
    let most = layout.low_max(zones.first().map_or(HostPages::Base, |zone| zone.backing.pages));
    let (mut low, mut next) = (0, ABOVE_4G);
    let mut slots = Vec::with_capacity(zones.len() + 1);
    for &Zone { size, node, backing } in zones {
        // Nothing goes below again once something is above.
        let room = if next == ABOVE_4G { most - low } else { 0 };
        let below = size.min(room - room % backing.pages.bytes());
        let below = Some(GpaRange::of(low, below)).filter(|range| !range.is_empty());
        low = below.map_or(low, GpaRange::end);
        let above = high(next, size - below.map_or(0, GpaRange::length), holes)?;
        next = above.last().map_or(next, |last| last.end());
        slots.extend(below.into_iter().chain(above).map(|range| Slot { range, node, backing }));
    }
    Ok(slots)
}

/// The addresses of x86-64, 52 bits, end here.
const MOST_ADDRESSES: u64 = 1 << 52;

/// `range` in pieces of [`SLOT_MAX`], the last of which may be smaller. One that no addresses have room for is refused later, whole.
fn pieces(range: GpaRange) -> impl Iterator<Item = GpaRange> {
    let most = if range.end() > MOST_ADDRESSES { range.length().max(1) } else { SLOT_MAX };
    let starts = (range.start()..range.end()).step_by(usize::try_from(most).unwrap_or(usize::MAX));
    starts.map(move |start| GpaRange::of(start, most.min(range.end() - start)))
}

/// Cuts `length` bytes from `start` up into `holes` + 1 parts, as equal as whole sections allow, one section apart.
fn high(start: u64, length: u64, holes: u16) -> Result<Vec<GpaRange>, PlanError> {
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

    let mut next = start;
    let mut left = length;
    Ok((0..parts)
        .map(|part| {
            let longer = u64::from(part < sections % parts);
            // The last part takes the tail that is no whole section.
            let length = if part + 1 == parts { left } else { (sections / parts + longer) * SECTION_SIZE };
            // A size that is too large for any addresses is found to be so when all of it has been placed.
            let range = GpaRange::of(next, length);
            left -= length;
            next = range.end().saturating_add(SECTION_SIZE);
            range
        })
        .flat_map(pieces)
        .collect())
}
