// SPDX-License-Identifier: Apache-2.0
//! Where the memmap will be.

use flatboot_handoff::{ARENA_ALIGN, Arena, Region, SECTION_SIZE};

use super::range::GpaRange;
use crate::layout::{ABOVE_4G, PAGE_SIZE};

/// Bytes of a `struct page` on x86-64.
const STRUCT_PAGE: u64 = 64;
/// Bytes of the memmap of one section, whole or not.
pub(super) const SECTION_MEMMAP: u64 = SECTION_SIZE / PAGE_SIZE * STRUCT_PAGE;
/// What Linux allocates before the memmap (node data, page tables) comes from the top of memory, too.
const TOP_MARGIN: u64 = 4 << 20;

const _: () = assert!(SECTION_MEMMAP.is_multiple_of(ARENA_ALIGN));

/// Room for the memmap of all of `ram`, where Linux's top-down boot-time allocator puts it by itself.
///
/// Linux asks for the memmap of a node in one piece, and for that of each section apart if no range holds it all. So the
/// arena is in the highest region that holds it, be it all of that; failing that, there are several, which fill regions
/// from the highest down. The low region stays free for what needs low addresses, unless the VM has no other, and then
/// half of it does. If that cannot hold the whole memmap, there is no arena: the VM has little memory, and its memmap
/// is small.
pub(super) fn arenas(ram: &[GpaRange], regions: &[Region]) -> Vec<Arena> {
    let needed = ram.iter().map(|range| range.length().div_ceil(SECTION_SIZE) * SECTION_MEMMAP).sum();
    let mut rooms = rooms(regions);
    if let Some(room) = rooms.iter().find(|room| room.length() >= needed) {
        return vec![top(*room, needed)];
    }
    if rooms.iter().map(|room| room.length()).sum::<u64>() < needed {
        return Vec::new();
    }

    let mut left = needed;
    rooms.retain(|room| !room.is_empty());
    let mut arenas: Vec<_> = rooms
        .into_iter()
        .map_while(|room| {
            let length = room.length().min(left);
            left -= length;
            (length > 0).then(|| top(room, length))
        })
        .collect();
    arenas.reverse();
    arenas
}

/// What an arena can take of each region that may have one, the highest first.
fn rooms(regions: &[Region]) -> Vec<GpaRange> {
    let only_one = regions.len() == 1;
    let candidates = regions.iter().rev().filter(|region| only_one || region.base >= ABOVE_4G);
    candidates
        .enumerate()
        .map(|(index, region)| {
            let margin = if index == 0 { TOP_MARGIN } else { 0 };
            let end = align_down(region.end().saturating_sub(margin));
            let most = align_down(if only_one { region.length / 2 } else { region.length });
            let start = region.base.next_multiple_of(ARENA_ALIGN).max(end.saturating_sub(most));
            GpaRange::new(start, end)
        })
        .collect()
}

fn top(room: GpaRange, length: u64) -> Arena {
    Arena { base: room.end() - length, length, node: 0 }
}

const fn align_down(address: u64) -> u64 {
    address - address % ARENA_ALIGN
}
