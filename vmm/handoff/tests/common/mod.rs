// SPDX-License-Identifier: Apache-2.0
//! Valid tables, at random.

use flatboot_handoff::{ARENA_ALIGN, Arena, PAGE_SIZE, Region, RegionFlags, SECTION_SIZE, encode, encoded_len};
use proptest::prelude::*;

/// Pages in a section.
const SECTION_PAGES: u64 = SECTION_SIZE / PAGE_SIZE;

/// A region that is still to be placed: gap before it and length in sections, node step, flags, arena slots.
type Draft = (u64, u64, u32, u32, Vec<(u64, u64)>);

fn draft() -> impl Strategy<Value = Draft> {
    let arenas = proptest::collection::vec((0..4u64, 1..4u64), 0..3);
    (0..3u64, 1..64u64, 0..2u32, 0..2u32, arenas)
}

/// Regions and arenas that keep every rule: several nodes, gaps, a first and a last region that end within sections, and
/// held regions behind them.
pub(crate) fn entries() -> impl Strategy<Value = (Vec<Region>, Vec<Arena>)> {
    let ends = (0..SECTION_PAGES, 0..SECTION_PAGES);
    let drafts = proptest::collection::vec(draft(), 1..24);
    (drafts, 0..4usize, ends).prop_map(|(drafts, held, ends)| place(&drafts, drafts.len().saturating_sub(held), ends))
}

/// The first `owned` drafts as they are, the others held.
fn place(drafts: &[Draft], owned: usize, (head, tail): (u64, u64)) -> (Vec<Region>, Vec<Arena>) {
    let (mut regions, mut arenas) = (Vec::new(), Vec::new());
    let (mut at, mut node) = (0, 0);
    for (index, (gap, sections, step, flags, slots)) in drafts.iter().enumerate() {
        at += gap * SECTION_SIZE;
        node += step;
        let mut base = at;
        at += sections * SECTION_SIZE;
        let mut end = at;
        if index >= owned {
            regions.push(Region { base, length: end - base, node, flags: RegionFlags::HELD });
            continue;
        }
        if index == 0 {
            base += head * PAGE_SIZE;
        }
        if index + 1 == owned && end - base > tail * PAGE_SIZE {
            end -= tail * PAGE_SIZE;
        }
        let flags = RegionFlags::from_bits_truncate(*flags);
        regions.push(Region { base, length: end - base, node, flags });
        place_arenas(slots, base, end, node, &mut arenas);
    }
    (regions, arenas)
}

fn place_arenas(slots: &[(u64, u64)], base: u64, end: u64, node: u32, arenas: &mut Vec<Arena>) {
    let mut at = base.next_multiple_of(ARENA_ALIGN);
    for (gap, length) in slots {
        at += gap * ARENA_ALIGN;
        let length = length * ARENA_ALIGN;
        if at + length > end {
            return;
        }
        arenas.push(Arena { base: at, length, node });
        at += length;
    }
}

/// The table of entries that keep every rule.
pub(crate) fn table(regions: &[Region], arenas: &[Arena]) -> Vec<u8> {
    let mut bytes = vec![0; encoded_len(regions.len(), arenas.len())];
    assert_eq!(encode(regions, arenas, &mut bytes), Ok(bytes.len()));
    bytes
}
