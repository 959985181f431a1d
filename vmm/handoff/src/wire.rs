// SPDX-License-Identifier: Apache-2.0
//! The table as bytes: a header, then the regions, then the arenas; every field little-endian, no padding.
//!
//! These field lists are the only place that says where a field is: encoder, parser and C header follow them.

/// First eight bytes of a table, as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLATBOOT");
/// The version that this crate speaks.
pub const VERSION: u32 = 2;

/// One field: an unsigned integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name, the same in C.
    pub name: &'static str,
    /// Its size in bytes: 4 or 8.
    pub size: usize,
    /// What it holds, in a few words.
    pub meaning: &'static str,
}

const fn u32(name: &'static str, meaning: &'static str) -> Field {
    Field { name, size: 4, meaning }
}

const fn u64(name: &'static str, meaning: &'static str) -> Field {
    Field { name, size: 8, meaning }
}

/// The header.
pub const HEADER: [Field; 8] = [
    u64("magic", "\"FLATBOOT\""),
    u32("version", "2"),
    u32("length", "bytes of the whole table, this header included"),
    u32("region_count", "1 to 4096"),
    u32("arena_count", "0 to 4096"),
    u32("crc32c", "CRC-32C of the whole table with this field zero"),
    u32("header_length", "40"),
    // Eight bytes that also keep the entries 8-byte aligned.
    u64("reserved", "0"),
];

/// A region entry.
pub const REGION: [Field; 4] = [
    u64("base", "guest physical address, in bytes"),
    u64("length", "bytes"),
    u32("node", "NUMA node"),
    u32("flags", "region flags"),
];

/// An arena entry.
pub const ARENA: [Field; 4] = [
    u64("base", "guest physical address, in bytes"),
    u64("length", "bytes"),
    u32("node", "NUMA node"),
    // Four bytes that also keep the entries 8-byte aligned.
    u32("reserved", "0"),
];

/// Bytes in the header.
pub const HEADER_LEN: usize = length(&HEADER);
/// Bytes in a region entry.
pub const REGION_LEN: usize = length(&REGION);
/// Bytes in an arena entry.
pub const ARENA_LEN: usize = length(&ARENA);

pub(crate) const CRC32C_OFFSET: usize = offset(&HEADER, "crc32c");

const _: () = {
    assert!(HEADER_LEN == 40 && REGION_LEN == 24 && ARENA_LEN == 24);
    assert!(aligned(&HEADER) && aligned(&REGION) && aligned(&ARENA));
};

/// Bytes that the fields take together.
#[must_use]
pub const fn length(fields: &[Field]) -> usize {
    let mut sum = 0;
    let mut i = 0;
    while i < fields.len() {
        sum += fields[i].size;
        i += 1;
    }
    sum
}

/// Bytes before the field `name`; all fields' bytes if there is none of that name.
#[must_use]
pub const fn offset(fields: &[Field], name: &str) -> usize {
    let mut sum = 0;
    let mut i = 0;
    while i < fields.len() && !same(fields[i].name, name) {
        sum += fields[i].size;
        i += 1;
    }
    sum
}

/// A C compiler adds no padding: every field sits at a multiple of its size, and so does the next entry's first field.
const fn aligned(fields: &[Field]) -> bool {
    let mut at = 0;
    let mut i = 0;
    while i < fields.len() {
        if at % fields[i].size != 0 {
            return false;
        }
        at += fields[i].size;
        i += 1;
    }
    at % 8 == 0
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Reads fields one after another.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*field))
    }
}

/// Writes fields one after another, and stops silently at the end: the encoder has checked the length before.
#[derive(Debug)]
pub(crate) struct Writer<'a>(pub(crate) &'a mut [u8]);

impl Writer<'_> {
    pub(crate) fn u32(&mut self, value: u32) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(value.to_le_bytes());
    }

    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some((to, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *to = field;
            self.0 = rest;
        }
    }
}
