// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a hand-off table: parsing never panics, and what parses is what encoding its entries gives.
//! The stable-toolchain twins are in `vmm/handoff/tests/properties.rs`.
#![no_main]

use flatboot_handoff::{Table, TableError, encode, encoded_len, wire};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);

    // Almost no mutation keeps the checksum, so correct it and look past it, too.
    let mut sealed = bytes.to_vec();
    let at = wire::offset(&wire::HEADER, "crc32c");
    while let Err(TableError::Crc { computed, .. }) = Table::parse(&sealed) {
        sealed[at..at + 4].copy_from_slice(&computed.to_le_bytes());
    }
    check(&sealed);
});

fn check(bytes: &[u8]) {
    let Ok(table) = Table::parse(bytes) else { return };
    let regions: Vec<_> = table.regions().collect();
    let arenas: Vec<_> = table.arenas().collect();
    let mut again = vec![0; encoded_len(regions.len(), arenas.len())];
    let length = encode(&regions, &arenas, &mut again).expect("entries of a valid table are valid");
    assert_eq!(&again[..length], table.as_bytes());
}
