// SPDX-License-Identifier: Apache-2.0
//! Where RAM is in the guest's physical address space.

use flatboot_handoff::SECTION_SIZE;

use super::e820::{E820_LOW_ENTRIES, E820_MAX_ENTRIES};
use super::plan::PlanError;
use super::range::{AddressWidth, GpaRange};
use super::size::{MemorySize, Size};
use crate::layout::{ABOVE_4G, LOW_MEMORY_MAX};

/// Most holes that memory can have: every part above 4 GiB is an e820 entry, and the zero page has room for only so many.
pub const MAX_HOLES: u16 = 124;

const _: () = assert!(E820_LOW_ENTRIES + MAX_HOLES as usize + 1 == E820_MAX_ENTRIES);

/// RAM as ranges: the low one from 0, then those above 4 GiB, each of whole sections but the last one's end.
///
/// Each becomes one KVM memory slot, backed by one contiguous mapping in the VMM.
pub(super) fn ram(size: MemorySize, holes: u16, width: AddressWidth) -> Result<Vec<GpaRange>, PlanError> {
    check_width(size, holes, width)?;
    let low = size.bytes().min(LOW_MEMORY_MAX);
    let mut ram = vec![GpaRange::new(0, low)];
    ram.extend(high(size.bytes() - low, holes)?);
    Ok(ram)
}

pub(super) fn check_width(size: MemorySize, holes: u16, width: AddressWidth) -> Result<(), PlanError> {
    // No overflow, no underflow: at most 124 holes of 128 MiB, and the narrowest width leaves 60 GiB above 4 GiB.
    let max = width.end() - ABOVE_4G - u64::from(holes.min(MAX_HOLES)) * SECTION_SIZE + LOW_MEMORY_MAX;
    if size.bytes() <= max {
        return Ok(());
    }
    Err(PlanError::TooLarge { size, min: Size(MemorySize::MIN), max: Size(max), bits: width.bits() })
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
