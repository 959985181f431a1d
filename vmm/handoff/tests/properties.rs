// SPDX-License-Identifier: Apache-2.0
//! What holds for every table and for every sequence of bytes.
#![expect(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

mod common;

use common::{entries, table};
use flatboot_handoff::{Table, TableError, encode, wire};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// CRC-32C (Castagnoli), bit by bit: a second opinion that shares nothing with the crate.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

/// Gives `bytes` the checksum that their own length field asks for, so that parsing gets past it.
fn reseal(bytes: &mut [u8]) {
    let length = bytes.get(12..16).map_or(0, |field| u32::from_le_bytes(field.try_into().unwrap()) as usize);
    if let Some(table) = bytes.get_mut(..length).filter(|table| table.len() >= wire::HEADER_LEN) {
        table[24..28].fill(0);
        let crc = crc32c(table);
        table[24..28].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Whatever parses must be what encoding its own entries gives.
fn parse_is_sound(bytes: &[u8]) {
    if let Ok(parsed) = Table::parse(bytes) {
        let regions: Vec<_> = parsed.regions().collect();
        let arenas: Vec<_> = parsed.arenas().collect();
        assert_eq!(table(&regions, &arenas), parsed.as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn round_trip((regions, arenas) in entries(), trailing in proptest::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = table(&regions, &arenas);
        let length = bytes.len();
        bytes.extend(trailing);
        let parsed = Table::parse(&bytes).unwrap();
        prop_assert_eq!(parsed.as_bytes(), &bytes[..length]);
        prop_assert!(parsed.regions().eq(regions));
        prop_assert!(parsed.arenas().eq(arenas));
    }

    #[test]
    fn a_bit_flip_is_rejected((regions, arenas) in entries(), bit in any::<prop::sample::Index>()) {
        let mut bytes = table(&regions, &arenas);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Table::parse(&bytes).is_err());
    }

    #[test]
    fn a_cut_is_rejected((regions, arenas) in entries(), at in any::<prop::sample::Index>()) {
        let bytes = table(&regions, &arenas);
        let cut = &bytes[..at.index(bytes.len())];
        let needed = if cut.len() < wire::HEADER_LEN { wire::HEADER_LEN } else { bytes.len() };
        prop_assert_eq!(Table::parse(cut), Err(TableError::Truncated { bytes: cut.len(), needed }));
    }

    #[test]
    fn a_small_buffer_is_refused_and_untouched((regions, arenas) in entries(), at in any::<prop::sample::Index>()) {
        let needed = table(&regions, &arenas).len();
        let mut buffer = vec![0xa5; at.index(needed)];
        let bytes = buffer.len();
        prop_assert_eq!(encode(&regions, &arenas, &mut buffer), Err(TableError::Buffer { bytes, needed }));
        prop_assert!(buffer.iter().all(|byte| *byte == 0xa5));
    }
}

// The stable-toolchain twin of the fuzz target `handoff_parse`.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        parse_is_sound(&bytes);
    }

    #[test]
    fn damaged_tables_with_a_good_checksum_never_panic(
        (regions, arenas) in entries(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = table(&regions, &arenas);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        reseal(&mut bytes);
        parse_is_sound(&bytes);
    }
}

#[test]
fn every_single_bit_flip_of_one_table_is_rejected() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (regions, arenas) = entries().new_tree(&mut runner).unwrap().current();
    let bytes = table(&regions, &arenas);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Table::parse(&flipped).is_err(), "bit {bit}");
    }
}
