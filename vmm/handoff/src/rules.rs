// SPDX-License-Identifier: Apache-2.0
//! The rules for regions and arenas, the same for who writes a table and for who reads one.

use crate::entry::{Arena, Region, RegionFlags};
use crate::error::{Entry, TableError};
use crate::{ADDRESS_END, ARENA_ALIGN, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, SECTION_SIZE};

pub(crate) fn check_counts(regions: usize, arenas: usize) -> Result<(), TableError> {
    if regions == 0 || regions > MAX_REGIONS {
        return Err(TableError::RegionCount(regions));
    }
    if arenas > MAX_ARENAS {
        return Err(TableError::ArenaCount(arenas));
    }
    Ok(())
}

/// Checks the fields of a table that mean nothing: those of its arenas, in order.
pub(crate) fn check_reserved(mut fields: impl Iterator<Item = u32>) -> Result<(), TableError> {
    let mut index = 0;
    fields.try_for_each(|reserved| {
        if reserved != 0 {
            return Err(TableError::ArenaReserved { index, reserved });
        }
        index += 1;
        Ok(())
    })
}

/// Checks every rule that concerns entries; the counts are already checked.
pub(crate) fn check_entries<R, A>(regions: R, arenas: A) -> Result<(), TableError>
where
    R: Iterator<Item = Region> + Clone,
    A: Iterator<Item = Arena>,
{
    let mut end = 0;
    let mut held = false;
    for (index, region) in regions.clone().enumerate() {
        check_range(Entry::Region(index), region.base, region.length, end)?;
        check_region(index, &region)?;
        check_held(index, &region, held)?;
        held = region.is_held();
        end = region.end();
    }
    check_sections(&regions)?;
    check_shared_sections(&regions)?;

    let mut end = 0;
    // Both lists are sorted, so the search for an arena's region goes on where the last one ended.
    let mut home = regions.peekable();
    for (index, arena) in arenas.enumerate() {
        check_range(Entry::Arena(index), arena.base, arena.length, end)?;
        check_arena(index, &arena)?;
        end = arena.end();
        while home.next_if(|region| region.end() <= arena.base).is_some() {}
        let inside = home.peek().is_some_and(|region| {
            !region.is_held() && region.base <= arena.base && end <= region.end() && region.node == arena.node
        });
        if !inside {
            return Err(TableError::Outside { index, base: arena.base, end, node: arena.node });
        }
    }
    Ok(())
}

/// A range must hold something, end in the address space and begin at or after `previous_end`.
fn check_range(entry: Entry, base: u64, length: u64, previous_end: u64) -> Result<(), TableError> {
    if length == 0 {
        return Err(TableError::Empty(entry));
    }
    if base.checked_add(length).is_none_or(|end| end > ADDRESS_END) {
        return Err(TableError::End { entry, base, length });
    }
    if base < previous_end {
        return Err(TableError::Order { entry, base, end: previous_end });
    }
    Ok(())
}

fn check_region(index: usize, region: &Region) -> Result<(), TableError> {
    let &Region { base, length, flags, .. } = region;
    if flags.bits() & !RegionFlags::all().bits() != 0 {
        let known = RegionFlags::all().bits();
        return Err(TableError::Flags { index, flags: flags.bits(), known });
    }
    if !(base | length).is_multiple_of(PAGE_SIZE) {
        return Err(TableError::PageAlignment { index, base, length });
    }
    Ok(())
}

/// What a kernel is to take later, it takes by sections, from the first held region to the last.
fn check_held(index: usize, region: &Region, follows_held: bool) -> Result<(), TableError> {
    let &Region { base, length, flags, .. } = region;
    if !region.is_held() {
        return if follows_held { Err(TableError::HeldOrder { index }) } else { Ok(()) };
    }
    if flags != RegionFlags::HELD {
        let held = RegionFlags::HELD.bits();
        return Err(TableError::HeldFlags { index, flags: flags.bits(), held });
    }
    if !(base | length).is_multiple_of(SECTION_SIZE) {
        return Err(TableError::HeldAlignment { index, base, length });
    }
    Ok(())
}

/// Regions in the middle of a node's memory that begin or end within a section could share it, and sections are what threads
/// take. Held regions, which are whole sections, make no other one a region in the middle.
fn check_sections(regions: &(impl Iterator<Item = Region> + Clone)) -> Result<(), TableError> {
    let mut rest = regions.clone();
    let mut index = 0;
    while let Some(Region { base, length, node, .. }) = rest.next() {
        let same_node = |other: Region| other.node == node && !other.is_held();
        if !(base | length).is_multiple_of(SECTION_SIZE)
            && rest.clone().any(same_node)
            && regions.clone().take(index).any(same_node)
        {
            return Err(TableError::SectionAlignment { index, base, length, node });
        }
        index += 1;
    }
    Ok(())
}

/// A section is what one thread fills, so it belongs to one region of its node.
fn check_shared_sections(regions: &(impl Iterator<Item = Region> + Clone)) -> Result<(), TableError> {
    let mut rest = regions.clone();
    let mut index = 0;
    while let Some(region) = rest.next() {
        let section_end = region.end().next_multiple_of(SECTION_SIZE);
        let in_last_section = rest.clone().take_while(|other| other.base < section_end);
        if let Some(offset) = in_last_section.enumerate().find(|(_, other)| other.node == region.node).map(|(i, _)| i) {
            return Err(TableError::SharedSection { index: index + 1 + offset, node: region.node });
        }
        index += 1;
    }
    Ok(())
}

fn check_arena(index: usize, arena: &Arena) -> Result<(), TableError> {
    let &Arena { base, length, .. } = arena;
    if !(base | length).is_multiple_of(ARENA_ALIGN) {
        return Err(TableError::ArenaAlignment { index, base, length });
    }
    Ok(())
}
