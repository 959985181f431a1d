// SPDX-License-Identifier: Apache-2.0
//! Where the memmap will be.

use std::collections::BTreeSet;

use flatboot_handoff::{ARENA_ALIGN, Arena, Region, SECTION_SIZE};

use super::range::GpaRange;
use crate::layout::{ABOVE_4G, PAGE_SIZE};

/// Bytes of a `struct page` on x86-64.
const STRUCT_PAGE: u64 = 64;
/// Bytes of the memmap of one section, whole or not.
pub(super) const SECTION_MEMMAP: u64 = SECTION_SIZE / PAGE_SIZE * STRUCT_PAGE;
/// What Linux allocates before the memmap comes from the top, too: a node's own data from that of the node, page tables from that of
/// all memory.
const TOP_MARGIN: u64 = 4 << 20;

const _: () = assert!(SECTION_MEMMAP.is_multiple_of(ARENA_ALIGN));

/// Room for the memmap of each node's RAM on that node, where Linux's top-down boot-time allocator puts it by itself; sorted.
///
/// Linux asks for the memmap of a node in one piece, and for that of each section apart if no range holds it all. So a node's
/// arena is in the highest of its regions that holds it, be it all of that; failing that, there are several, which fill regions
/// from the highest down. The low region stays free for what needs low addresses, unless the node has no other, and then
/// half of it does. If that cannot hold the node's whole memmap, the node has no arena: it has little memory, and its memmap
/// is small.
pub(super) fn arenas(runs: &[(GpaRange, u32)], regions: &[Region]) -> Vec<Arena> {
    let nodes: BTreeSet<_> = runs.iter().map(|(_, node)| *node).collect();
    let mut arenas: Vec<_> = nodes.into_iter().flat_map(|node| of_node(node, runs, regions)).collect();
    arenas.sort_by_key(|arena| arena.base);
    arenas
}

fn of_node(node: u32, runs: &[(GpaRange, u32)], regions: &[Region]) -> Vec<Arena> {
    let own = runs.iter().filter(|(_, of)| *of == node);
    let needed = own.map(|(range, _)| range.length().div_ceil(SECTION_SIZE) * SECTION_MEMMAP).sum();
    let mut rooms = rooms(node, regions);
    if let Some(room) = rooms.iter().find(|room| room.length() >= needed) {
        return vec![top(*room, needed, node)];
    }
    if rooms.iter().map(|room| room.length()).sum::<u64>() < needed {
        return Vec::new();
    }

    let mut left = needed;
    rooms.retain(|room| !room.is_empty());
    let arenas = rooms.into_iter().map_while(|room| {
        let length = room.length().min(left);
        left -= length;
        (length > 0).then(|| top(room, length, node))
    });
    arenas.collect()
}

/// What an arena can take of each of a node's regions that may have one, the highest first.
fn rooms(node: u32, regions: &[Region]) -> Vec<GpaRange> {
    let own = || regions.iter().rev().filter(|region| region.node == node);
    let only_one = own().count() == 1;
    let candidates = own().filter(|region| only_one || region.base >= ABOVE_4G);
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

fn top(room: GpaRange, length: u64, node: u32) -> Arena {
    Arena { base: room.end() - length, length, node }
}

const fn align_down(address: u64) -> u64 {
    address - address % ARENA_ALIGN
}
