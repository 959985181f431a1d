// SPDX-License-Identifier: Apache-2.0
//! Every rule, broken alone, is rejected with its own error and its own message, by the encoder and by the parser.
#![expect(clippy::expect_used, reason = "tests may stop at the first surprise")]

use flatboot_handoff::{
    ADDRESS_END, ARENA_ALIGN, Arena, Entry, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, Region, RegionFlags, SECTION_SIZE,
    Table, TableError, encode, encoded_len, wire,
};

const S: u64 = SECTION_SIZE;

fn region(base: u64, length: u64) -> Region {
    Region { base, length, node: 0, flags: RegionFlags::empty() }
}

fn arena(base: u64, length: u64) -> Arena {
    Arena { base, length, node: 0 }
}

/// Lays entries out as bytes whatever they hold, from the field lists alone: what a broken VMM could write.
fn lay_out(regions: &[Region], arenas: &[Arena]) -> Vec<u8> {
    let mut bytes = vec![0; encoded_len(regions.len(), arenas.len())];
    let length = bytes.len() as u64;
    put(&mut bytes, 0, &wire::HEADER, "magic", wire::MAGIC);
    put(&mut bytes, 0, &wire::HEADER, "version", wire::VERSION.into());
    put(&mut bytes, 0, &wire::HEADER, "length", length);
    put(&mut bytes, 0, &wire::HEADER, "region_count", regions.len() as u64);
    put(&mut bytes, 0, &wire::HEADER, "arena_count", arenas.len() as u64);
    put(&mut bytes, 0, &wire::HEADER, "header_length", wire::HEADER_LEN as u64);
    let mut at = wire::HEADER_LEN;
    for region in regions {
        put(&mut bytes, at, &wire::REGION, "base", region.base);
        put(&mut bytes, at, &wire::REGION, "length", region.length);
        put(&mut bytes, at, &wire::REGION, "node", region.node.into());
        put(&mut bytes, at, &wire::REGION, "flags", region.flags.bits().into());
        at += wire::REGION_LEN;
    }
    for arena in arenas {
        put(&mut bytes, at, &wire::ARENA, "base", arena.base);
        put(&mut bytes, at, &wire::ARENA, "length", arena.length);
        put(&mut bytes, at, &wire::ARENA, "node", arena.node.into());
        at += wire::ARENA_LEN;
    }
    seal(&mut bytes);
    bytes
}

fn put(bytes: &mut [u8], entry: usize, fields: &[wire::Field], name: &str, value: u64) {
    let field = fields.iter().find(|field| field.name == name).expect("a field of that name");
    let at = entry + wire::offset(fields, name);
    bytes[at..at + field.size].copy_from_slice(&value.to_le_bytes()[..field.size]);
}

/// CRC-32C, bit by bit.
fn seal(bytes: &mut [u8]) {
    put(bytes, 0, &wire::HEADER, "crc32c", 0);
    let crc = !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    });
    put(bytes, 0, &wire::HEADER, "crc32c", crc.into());
}

#[track_caller]
fn both_reject(regions: &[Region], arenas: &[Arena], error: TableError, message: &str) {
    let mut buffer = vec![0xa5; encoded_len(regions.len(), arenas.len())];
    assert_eq!(encode(regions, arenas, &mut buffer), Err(error));
    assert!(buffer.iter().all(|byte| *byte == 0xa5), "written to in spite of the error");
    assert_eq!(Table::parse(&lay_out(regions, arenas)), Err(error));
    assert_eq!(error.to_string(), message);
}

/// A valid table with one header field changed, under a good checksum unless that is the field.
#[track_caller]
fn header_rejected(name: &str, value: u64, error: TableError, message: &str) {
    let mut bytes = lay_out(&[region(0, S)], &[]);
    put(&mut bytes, 0, &wire::HEADER, name, value);
    if name != "crc32c" {
        seal(&mut bytes);
    }
    assert_eq!(Table::parse(&bytes), Err(error));
    assert_eq!(error.to_string(), message);
}

#[test]
fn the_field_lists_are_where_the_encoder_writes() {
    let regions = [region(0x10_0000, 2 * S - 0x10_0000), Region { node: 3, ..region(32 * S, 9 * S) }];
    let arenas = [Arena { node: 3, ..arena(33 * S, 4 * ARENA_ALIGN) }];
    let mut bytes = vec![0; encoded_len(2, 1)];
    encode(&regions, &arenas, &mut bytes).unwrap();
    assert_eq!(bytes, lay_out(&regions, &arenas));
    assert_eq!(&bytes[..8], b"FLATBOOT");
}

#[test]
fn header_fields() {
    header_rejected("magic", 1, TableError::Magic(1), "magic 0x1: must be 0x544f4f4254414c46 (\"FLATBOOT\")");
    header_rejected("version", 1, TableError::Version(1), "version 1: must be 2");
    header_rejected("version", 3, TableError::Version(3), "version 3: must be 2");
    header_rejected("header_length", 48, TableError::HeaderLength(48), "header length 48: must be 40");
    header_rejected("reserved", 16, TableError::Reserved(16), "reserved field 0x10: must be 0");
    header_rejected("region_count", 0, TableError::RegionCount(0), "0 regions: must be 1 to 4096");
    header_rejected("region_count", 4097, TableError::RegionCount(4097), "4097 regions: must be 1 to 4096");
    header_rejected("arena_count", 4097, TableError::ArenaCount(4097), "4097 arenas: must be at most 4096");
    header_rejected(
        "length",
        65,
        TableError::Length { length: 65, expected: 64 },
        "length 65: must be 64 (40 + 24 a region + 24 an arena)",
    );
}

#[test]
fn checksum() {
    let bytes = lay_out(&[region(0, S)], &[]);
    let computed = u32::from_le_bytes(bytes[24..28].try_into().unwrap());
    let message = format!("CRC-32C 0x00000001: must be {computed:#010x}");
    header_rejected("crc32c", 1, TableError::Crc { stored: 1, computed }, &message);
}

#[test]
fn counts() {
    let error = TableError::RegionCount(0);
    both_reject(&[], &[], error, "0 regions: must be 1 to 4096");

    let many: Vec<_> = (0..=MAX_REGIONS as u64).map(|i| region(i * S, S)).collect();
    both_reject(&many, &[], TableError::RegionCount(4097), "4097 regions: must be 1 to 4096");
    let arenas: Vec<_> = (0..=MAX_ARENAS as u64).map(|i| arena(i * ARENA_ALIGN, ARENA_ALIGN)).collect();
    let home = [region(0, 100 * S)];
    both_reject(&home, &arenas, TableError::ArenaCount(4097), "4097 arenas: must be at most 4096");

    let mut largest = vec![0; encoded_len(MAX_REGIONS, MAX_ARENAS)];
    let length = encode(&many[1..], &[], &mut largest).unwrap();
    assert_eq!(Table::parse(&largest[..length]).unwrap().regions().len(), MAX_REGIONS);
    let length = encode(&home, &arenas[1..], &mut largest).unwrap();
    assert_eq!(Table::parse(&largest[..length]).unwrap().arenas().len(), MAX_ARENAS);
}

#[test]
fn region_flags() {
    // Those of version 1 that told the kernel nothing are gone.
    for unknown in [0x4, 0x5, 0x8, 0x11, 0x8000_0000] {
        let flags = RegionFlags::from_bits_retain(unknown);
        let error = TableError::Flags { index: 0, flags: unknown, known: 3 };
        let message = format!("region 0: flags {unknown:#x}: must have no bit outside 0x3");
        both_reject(&[Region { flags, ..region(0, S) }], &[], error, &message);
    }
}

#[test]
fn region_ranges() {
    let first = region(0, 2 * S);
    both_reject(
        &[first, region(2 * S, 0)],
        &[],
        TableError::Empty(Entry::Region(1)),
        "region 1: length 0: must not be empty",
    );
    let (base, length) = (ADDRESS_END - S, 2 * S);
    both_reject(
        &[first, region(base, length)],
        &[],
        TableError::End { entry: Entry::Region(1), base, length },
        "region 1: base 0xffffff8000000, length 0x10000000: must end at or below 0x10000000000000",
    );
    let (base, length) = (2 * S, 0u64.wrapping_sub(S));
    both_reject(
        &[first, region(base, length)],
        &[],
        TableError::End { entry: Entry::Region(1), base, length },
        "region 1: base 0x10000000, length 0xfffffffff8000000: must end at or below 0x10000000000000",
    );
    for base in [0, S] {
        let message = format!("region 1: base {base:#x}: must not be below the end of the one before, 0x10000000");
        let error = TableError::Order { entry: Entry::Region(1), base, end: 2 * S };
        both_reject(&[first, region(base, S)], &[], error, &message);
    }
}

#[test]
fn region_alignment() {
    for (base, length) in [(512, S), (0, 4095)] {
        let message = format!("region 0: base {base:#x}, length {length:#x}: must be multiples of 0x1000");
        both_reject(&[region(base, length)], &[], TableError::PageAlignment { index: 0, base, length }, &message);
    }
}

#[test]
fn a_section_belongs_to_one_region_of_its_node() {
    let half = S / 2;
    let error = TableError::SharedSection { index: 1, node: 0 };
    let said = "region 1: shares a section with the one of node 0 before it: must begin in another section";
    both_reject(&[region(0, half), region(half, half + S)], &[], error, said);

    // Another node's region in between, in the same section, does not hide it; by itself it is no harm.
    let other = Region { node: 1, ..region(half, PAGE_SIZE) };
    let error = TableError::SharedSection { index: 2, node: 0 };
    let said = "region 2: shares a section with the one of node 0 before it: must begin in another section";
    both_reject(&[region(0, half), other, region(half + PAGE_SIZE, half)], &[], error, said);
    let mut table = [0; 256];
    assert!(encode(&[region(0, half), other], &[], &mut table).is_ok());
}

#[test]
fn only_a_nodes_first_and_last_region_may_share_sections_with_other_memory() {
    for (base, length) in [(S, PAGE_SIZE), (S + PAGE_SIZE, S - PAGE_SIZE), (S + PAGE_SIZE, PAGE_SIZE)] {
        let regions = [region(0, S), region(base, length), region(2 * S, S)];
        let error = TableError::SectionAlignment { index: 1, base, length, node: 0 };
        let message = format!(
            "region 1: base {base:#x}, length {length:#x}: must be multiples of 0x8000000 unless it is node 0's first or last"
        );
        both_reject(&regions, &[], error, &message);

        // The same range is at an end if either neighbour is of another node.
        for other in [0, 2] {
            let mut regions = regions;
            regions[other].node = 1;
            assert!(Table::parse(&lay_out(&regions, &[])).is_ok());
        }
    }
}

#[test]
fn arenas() {
    const A: u64 = ARENA_ALIGN;
    let home = [region(S, S), Region { node: 1, ..region(2 * S, S) }];
    both_reject(&home, &[arena(S, 0)], TableError::Empty(Entry::Arena(0)), "arena 0: length 0: must not be empty");
    both_reject(
        &home,
        &[arena(A, u64::MAX)],
        TableError::End { entry: Entry::Arena(0), base: A, length: u64::MAX },
        "arena 0: base 0x200000, length 0xffffffffffffffff: must end at or below 0x10000000000000",
    );
    both_reject(
        &home,
        &[arena(S, 2 * A), arena(S + A, A)],
        TableError::Order { entry: Entry::Arena(1), base: S + A, end: S + 2 * A },
        "arena 1: base 0x8200000: must not be below the end of the one before, 0x8400000",
    );
    for (base, length) in [(S + PAGE_SIZE, A), (S, A + PAGE_SIZE)] {
        let message = format!("arena 0: base {base:#x}, length {length:#x}: must be multiples of 0x200000");
        let error = TableError::ArenaAlignment { index: 0, base, length };
        both_reject(&home, &[arena(base, length)], error, &message);
    }
    // Before every region, across two regions, in a region of another node, after every region.
    for base in [0, 2 * S - A, 2 * S, 3 * S] {
        let end = base + 2 * A;
        let message =
            format!("arena 0: {base:#x} to {end:#x}, node 0: must be inside one region of its node that is not held");
        let error = TableError::Outside { index: 0, base, end, node: 0 };
        both_reject(&home, &[arena(base, 2 * A)], error, &message);
    }
}

fn held(base: u64, length: u64) -> Region {
    Region { flags: RegionFlags::HELD, ..region(base, length) }
}

#[test]
fn held_regions() {
    let first = region(0, S);
    let both = RegionFlags::HELD | RegionFlags::ZEROED;
    both_reject(
        &[first, Region { flags: both, ..region(S, S) }],
        &[],
        TableError::HeldFlags { index: 1, flags: 3, held: 2 },
        "region 1: flags 0x3: a held region must have no flag but 0x2",
    );
    for (base, length) in [(S + PAGE_SIZE, S), (S, PAGE_SIZE), (S + PAGE_SIZE, S - PAGE_SIZE)] {
        let message =
            format!("region 1: base {base:#x}, length {length:#x}: must be multiples of 0x8000000, as it is held");
        both_reject(&[first, held(base, length)], &[], TableError::HeldAlignment { index: 1, base, length }, &message);
    }
    both_reject(
        &[first, held(S, S), region(2 * S, S)],
        &[],
        TableError::HeldOrder { index: 2 },
        "region 2: follows a held region: must be held, too",
    );
    both_reject(
        &[first, held(S, S)],
        &[arena(S, ARENA_ALIGN)],
        TableError::Outside { index: 0, base: S, end: S + ARENA_ALIGN, node: 0 },
        "arena 0: 0x8000000 to 0x8200000, node 0: must be inside one region of its node that is not held",
    );
}

/// The last region before held ones ends where it likes, as the last of its node does.
#[test]
fn held_regions_do_not_make_another_one_a_region_in_the_middle() {
    let regions = [region(0, S), region(S, S + PAGE_SIZE), held(3 * S, S), held(8 * S, 2 * S)];
    let bytes = lay_out(&regions, &[arena(0, ARENA_ALIGN)]);
    assert!(Table::parse(&bytes).unwrap().regions().eq(regions));
    assert_eq!(regions.map(|region| region.is_held()), [false, false, true, true]);
    // In the section where that one ends there is no held memory, whatever its node.
    let base = 2 * S + PAGE_SIZE;
    let error = TableError::Order { entry: Entry::Region(2), base: 2 * S, end: base };
    let message = format!("region 2: base 0x10000000: must not be below the end of the one before, {base:#x}");
    both_reject(&[regions[0], regions[1], held(2 * S, S)], &[], error, &message);
}

/// What an arena said in version 1 beside its place meant nothing to any kernel; the field stays empty.
#[test]
fn an_arena_says_nothing_else() {
    let mut bytes = lay_out(&[region(S, S)], &[arena(S, ARENA_ALIGN), arena(S + ARENA_ALIGN, ARENA_ALIGN)]);
    let second = wire::HEADER_LEN + wire::REGION_LEN + wire::ARENA_LEN;
    put(&mut bytes, second, &wire::ARENA, "reserved", 1);
    seal(&mut bytes);
    let error = TableError::ArenaReserved { index: 1, reserved: 1 };
    assert_eq!(Table::parse(&bytes), Err(error));
    assert_eq!(error.to_string(), "arena 1: reserved field 0x1: must be 0");
}

#[test]
fn short_buffers() {
    let error = TableError::Truncated { bytes: 7, needed: 40 };
    assert_eq!(Table::parse(b"FLATBOO"), Err(error));
    assert_eq!(error.to_string(), "7 bytes: must be at least 40");
    let error = TableError::Buffer { bytes: 63, needed: 64 };
    assert_eq!(encode(&[region(0, S)], &[], &mut [0; 63]), Err(error));
    assert_eq!(error.to_string(), "buffer of 63 bytes: must hold 64");
}
