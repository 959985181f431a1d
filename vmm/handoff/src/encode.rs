// SPDX-License-Identifier: Apache-2.0
//! From regions and arenas to a table.

use crate::crc32c;
use crate::entry::{Arena, Region};
use crate::error::TableError;
use crate::rules::{check_counts, check_entries};
use crate::wire::{ARENA_LEN, CRC32C_OFFSET, HEADER_LEN, MAGIC, REGION_LEN, VERSION, Writer};

/// Bytes of a table with that many regions and arenas.
#[must_use]
pub const fn encoded_len(regions: usize, arenas: usize) -> usize {
    HEADER_LEN + regions * REGION_LEN + arenas * ARENA_LEN
}

/// Writes a table to the start of `buffer` and returns its length in bytes.
///
/// Nothing is written unless regions and arenas keep every rule and the buffer holds [`encoded_len`] bytes.
pub fn encode(regions: &[Region], arenas: &[Arena], buffer: &mut [u8]) -> Result<usize, TableError> {
    check_counts(regions.len(), arenas.len())?;
    check_entries(regions.iter().copied(), arenas.iter().copied())?;
    let needed = encoded_len(regions.len(), arenas.len());
    let bytes = buffer.len();
    let table = buffer.get_mut(..needed).ok_or(TableError::Buffer { bytes, needed })?;

    write(regions, arenas, table);
    let crc = crc32c::of_table(table);
    if let Some(field) = table.get_mut(CRC32C_OFFSET..) {
        Writer(field).u32(crc);
    }
    Ok(needed)
}

/// Writes everything with a zero checksum, in the order of the field lists.
#[expect(clippy::cast_possible_truncation, reason = "the counts are checked: the largest table has 192 KiB")]
fn write(regions: &[Region], arenas: &[Arena], table: &mut [u8]) {
    let length = table.len() as u32;
    let mut out = Writer(table);

    out.u64(MAGIC);
    out.u32(VERSION);
    out.u32(length);
    out.u32(regions.len() as u32);
    out.u32(arenas.len() as u32);
    out.u32(0);
    out.u32(HEADER_LEN as u32);
    out.u64(0);

    for region in regions {
        out.u64(region.base);
        out.u64(region.length);
        out.u32(region.node);
        out.u32(region.flags.bits());
    }
    for arena in arenas {
        out.u64(arena.base);
        out.u64(arena.length);
        out.u32(arena.node);
        out.u32(0);
    }
}
