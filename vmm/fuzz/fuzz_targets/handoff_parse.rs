// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a hand-off table: parsing never panics, and what parses is what encoding its entries gives.
//! The stable-toolchain twins are in `vmm/handoff/tests/properties.rs`.
#![no_main]

use flatboot_handoff::{Table, TableError, encode, encoded_len, wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Hardly any mutation gives a header that fits: give the same bytes one, to look past it, too.
    check(&with_header(bytes));
});

/// A valid header, then `bytes` as entries: as many regions as the first byte says, arenas as far as the rest goes.
fn with_header(bytes: &[u8]) -> Vec<u8> {
    let (regions, entries) = bytes.split_first().unwrap_or((&0, &[]));
    let regions = usize::from(*regions);
    let arenas = entries.len().saturating_sub(regions * wire::REGION_LEN) / wire::ARENA_LEN;
    let mut table = vec![0; encoded_len(regions, arenas)];
    let length = table.len();
    for (name, value) in [
        ("magic", wire::MAGIC),
        ("version", wire::VERSION.into()),
        ("length", length as u64),
        ("region_count", regions as u64),
        ("arena_count", arenas as u64),
        ("header_length", wire::HEADER_LEN as u64),
    ] {
        put(&mut table, name, value);
    }
    let body = &mut table[wire::HEADER_LEN..];
    let copied = body.len().min(entries.len());
    body[..copied].copy_from_slice(&entries[..copied]);
    if let Err(TableError::Crc { computed, .. }) = Table::parse(&table) {
        put(&mut table, "crc32c", computed.into());
    }
    table
}

fn put(table: &mut [u8], name: &str, value: u64) {
    let at = wire::offset(&wire::HEADER, name);
    let size = wire::HEADER.iter().find(|field| field.name == name).map_or(0, |field| field.size);
    table[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

fn check(bytes: &[u8]) {
    let Ok(table) = Table::parse(bytes) else { return };
    let regions: Vec<_> = table.regions().collect();
    let arenas: Vec<_> = table.arenas().collect();
    let mut again = vec![0; encoded_len(regions.len(), arenas.len())];
    let length = encode(&regions, &arenas, &mut again).expect("entries of a valid table are valid");
    assert_eq!(&again[..length], table.as_bytes());
}
