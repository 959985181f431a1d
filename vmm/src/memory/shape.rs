// SPDX-License-Identifier: Apache-2.0
//! Where RAM is in the guest's physical address space.

use flatboot_handoff::SECTION_SIZE;
use serde::{Deserialize, Serialize};

use super::e820::{E820_LOW_ENTRIES, E820_MAX_ENTRIES};
use super::pages::HostPages;
use super::plan::{PlanError, PlanInput, Study};
use super::range::{AddressWidth, GpaRange};
use super::size::{MemorySize, Size};
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

/// RAM as ranges: the low one from 0, then those above 4 GiB, each of whole sections but the last one's end.
///
/// Each becomes one KVM memory slot, backed by one contiguous mapping in the VMM.
pub(super) fn ram(input: &PlanInput) -> Result<Vec<GpaRange>, PlanError> {
    check_width(input, input.address_width)?;
    let size = input.size.bytes();
    let low = size.min(input.study.layout.low_max(input.pages));
    let mut ram = vec![GpaRange::new(0, low)];
    ram.extend(high(size - low, input.study.holes)?);
    Ok(ram)
}

pub(super) fn check_width(input: &PlanInput, width: AddressWidth) -> Result<(), PlanError> {
    let &PlanInput { size, pages, study: Study { holes, layout, .. }, .. } = input;
    // No overflow, no underflow: at most 124 holes of 128 MiB, and the narrowest width leaves 60 GiB above 4 GiB.
    let max = width.end() - ABOVE_4G - u64::from(holes.min(MAX_HOLES)) * SECTION_SIZE + layout.low_max(pages);
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
