// SPDX-License-Identifier: Apache-2.0
//! From bytes that nobody vouches for to a table.

use core::slice::ChunksExact;

use crate::crc32c;
use crate::encode::encoded_len;
use crate::entry::{Arena, Region, RegionFlags};
use crate::error::TableError;
use crate::rules::{check_counts, check_entries, check_reserved};
use crate::wire::{self, ARENA_LEN, HEADER_LEN, MAGIC, REGION_LEN, Reader, VERSION};

/// A table that keeps every rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'a> {
    bytes: &'a [u8],
    regions: &'a [u8],
    arenas: &'a [u8],
}

impl<'a> Table<'a> {
    /// Takes the table at the start of `bytes`; what follows it is not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TableError> {
        let header = Header::read(bytes)?;
        let needed = header.check()?;
        let truncated = TableError::Truncated { bytes: bytes.len(), needed };
        let bytes = bytes.get(..needed).ok_or(truncated)?;
        let computed = crc32c::of_table(bytes);
        if header.crc32c != computed {
            return Err(TableError::Crc { stored: header.crc32c, computed });
        }

        let (regions, arenas) = bytes
            .get(HEADER_LEN..)
            .and_then(|entries| entries.split_at_checked(header.region_count as usize * REGION_LEN))
            .ok_or(truncated)?;
        let table = Self { bytes, regions, arenas };
        check_reserved(table.reserved_fields())?;
        check_entries(table.regions(), table.arenas())?;
        Ok(table)
    }

    /// The table's own bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The regions, sorted by base.
    #[must_use]
    pub fn regions(&self) -> Regions<'a> {
        Regions(self.regions.chunks_exact(REGION_LEN))
    }

    /// The arenas, sorted by base.
    #[must_use]
    pub fn arenas(&self) -> Arenas<'a> {
        Arenas(self.arenas.chunks_exact(ARENA_LEN))
    }

    /// The field of each arena that means nothing, which [`Arena`] leaves out.
    fn reserved_fields(&self) -> impl Iterator<Item = u32> {
        const AT: usize = wire::offset(&wire::ARENA, "reserved");

        self.arenas.chunks_exact(ARENA_LEN).filter_map(|entry| Reader(entry.get(AT..)?).u32())
    }
}

/// The regions of a [`Table`].
#[derive(Debug, Clone)]
pub struct Regions<'a>(ChunksExact<'a, u8>);

impl Iterator for Regions<'_> {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let mut entry = Reader(self.0.next()?);
        Some(Region {
            base: entry.u64()?,
            length: entry.u64()?,
            node: entry.u32()?,
            flags: RegionFlags::from_bits_retain(entry.u32()?),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Regions<'_> {}

/// The arenas of a [`Table`].
#[derive(Debug, Clone)]
pub struct Arenas<'a>(ChunksExact<'a, u8>);

impl Iterator for Arenas<'_> {
    type Item = Arena;

    fn next(&mut self) -> Option<Arena> {
        let mut entry = Reader(self.0.next()?);
        Some(Arena { base: entry.u64()?, length: entry.u64()?, node: entry.u32()? })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Arenas<'_> {}

#[expect(clippy::struct_field_names, reason = "the names are those of the field list")]
struct Header {
    magic: u64,
    version: u32,
    length: u32,
    region_count: u32,
    arena_count: u32,
    crc32c: u32,
    header_length: u32,
    reserved: u64,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, TableError> {
        let mut fields = Reader(bytes);
        let mut read = || {
            Some(Self {
                magic: fields.u64()?,
                version: fields.u32()?,
                length: fields.u32()?,
                region_count: fields.u32()?,
                arena_count: fields.u32()?,
                crc32c: fields.u32()?,
                header_length: fields.u32()?,
                reserved: fields.u64()?,
            })
        };
        read().ok_or(TableError::Truncated { bytes: bytes.len(), needed: HEADER_LEN })
    }

    /// Checks all but the checksum, which covers bytes that a wrong length would miss; returns the table's length.
    fn check(&self) -> Result<usize, TableError> {
        if self.magic != MAGIC {
            return Err(TableError::Magic(self.magic));
        }
        if self.version != VERSION {
            return Err(TableError::Version(self.version));
        }
        if self.header_length as usize != HEADER_LEN {
            return Err(TableError::HeaderLength(self.header_length));
        }
        if self.reserved != 0 {
            return Err(TableError::Reserved(self.reserved));
        }
        let (regions, arenas) = (self.region_count as usize, self.arena_count as usize);
        check_counts(regions, arenas)?;
        let expected = encoded_len(regions, arenas);
        if self.length as usize != expected {
            return Err(TableError::Length { length: self.length, expected });
        }
        Ok(expected)
    }
}
