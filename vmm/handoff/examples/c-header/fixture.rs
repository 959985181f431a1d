// SPDX-License-Identifier: Apache-2.0
//! Tables, and what this crate says of them, for the firmware's tests: both implementations must say the same.

use std::fmt::{self, Write};

use flatboot_handoff::{
    ADDRESS_END, ARENA_ALIGN, Arena, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, Region, RegionFlags, SECTION_SIZE, Table,
    TableError, encode, encoded_len, wire,
};

/// Where the tables are, from the repository's root.
pub(crate) const PATH: &str = "firmware/FlatbootPkg/Library/BaseFlatbootHandOffLib/UnitTest/ContractTables.h";

const CRC32C: usize = wire::offset(&wire::HEADER, "crc32c");

/// A field that is set to a value.
#[derive(Debug, Clone, Copy)]
struct Edit {
    offset: usize,
    size: usize,
    value: u64,
}

/// What this crate says of the sample with some of its fields changed, of which that many bytes are there.
#[derive(Debug)]
pub(crate) struct Case {
    edits: Vec<Edit>,
    /// Whether the checksum is made right again.
    sealed: bool,
    bytes: usize,
    pub(crate) verdict: Result<(), TableError>,
}

/// The file's content.
pub(crate) fn content() -> String {
    let mut out = String::new();
    write(&mut out).map_or_else(|error| error.to_string(), |()| out)
}

fn write(out: &mut String) -> fmt::Result {
    writeln!(out, "/** @file\n  Tables as vmm/handoff encodes them, and what it says of changed ones.\n")?;
    writeln!(out, "  Generated from vmm/handoff, do not edit.\n")?;
    writeln!(out, "  SPDX-License-Identifier: BSD-2-Clause-Patent\n**/\n")?;
    writeln!(out, "#ifndef CONTRACT_TABLES_H_\n#define CONTRACT_TABLES_H_\n")?;

    comment(
        out,
        "Checksum of the table with the most entries: regions of one section and arenas of one huge page, from 0 up.",
    )?;
    writeln!(out, "#define LARGEST_TABLE_CRC  {:#010x}\n", stored_crc(&largest()))?;
    for (name, table) in [("Smallest", encoded(&[region(0, 1)], &[])), ("Sample", sample())] {
        comment(out, "A table, in words.")?;
        writeln!(out, "STATIC CONST UINT64  m{name}Table[] = {{")?;
        for word in table.chunks_exact(8) {
            let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            writeln!(out, "  {word:#018x}ULL,")?;
        }
        writeln!(out, "}};\n")?;
    }

    comment(
        out,
        "Edits of mSampleTable (offset, size, value), whether it is sealed then, bytes that are there, the verdict.",
    )?;
    writeln!(out, "STATIC CONST CONTRACT_CASE  mContractCases[] = {{")?;
    for Case { edits, sealed, bytes, verdict } in cases() {
        let edits: Vec<_> =
            edits.iter().map(|Edit { offset, size, value }| format!("{{ {offset}, {size}, {value:#x}ULL }}")).collect();
        let edits = if edits.is_empty() { "{ 0 }".to_owned() } else { edits.join(", ") };
        let sealed = if sealed { "TRUE" } else { "FALSE" };
        let verdict = verdict.map_or_else(|error| format!("{:?}", error.to_string()), |()| "NULL".to_owned());
        writeln!(out, "  {{ {{ {edits} }}, {sealed}, {bytes}, {verdict} }},")?;
    }
    writeln!(out, "}};\n\n#endif // CONTRACT_TABLES_H_")
}

fn comment(out: &mut String, text: &str) -> fmt::Result {
    writeln!(out, "///\n/// {text}\n///")
}

/// Each field of the sample, set to values one of which breaks each rule that it can break; and short tables.
pub(crate) fn cases() -> Vec<Case> {
    let sample = sample();
    let whole = sample.len();
    let short = [0, 7, wire::HEADER_LEN - 1, wire::HEADER_LEN, whole - 1, whole];
    let mut cases: Vec<_> = short.into_iter().map(|bytes| case(&sample, Vec::new(), true, bytes)).collect();
    for at in fields(&sample) {
        for value in values(at.value, at.size) {
            cases.push(case(&sample, vec![Edit { value, ..at }], at.offset != CRC32C, whole));
        }
    }
    // What a table says is not looked at before its checksum is right.
    cases.push(case(&sample, vec![Edit { offset: wire::HEADER_LEN, size: 8, value: 1 }], false, whole));
    // An arena that is moved into a held region of its node.
    let last_arena = whole - wire::ARENA_LEN;
    cases.push(case(&sample, vec![Edit { offset: last_arena, size: 8, value: 97 * SECTION_SIZE }], true, whole));
    cases
}

fn case(sample: &[u8], edits: Vec<Edit>, sealed: bool, bytes: usize) -> Case {
    let mut table = sample.to_vec();
    for &Edit { offset, size, value } in &edits {
        table[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    if sealed && let Err(TableError::Crc { computed, .. }) = Table::parse(&table) {
        table[CRC32C..][..4].copy_from_slice(&computed.to_le_bytes());
    }
    let verdict = Table::parse(&table[..bytes]).map(|_| ());
    Case { edits, sealed, bytes, verdict }
}

/// Every field of the sample, with its value.
fn fields(sample: &[u8]) -> Vec<Edit> {
    let table = Table::parse(sample).map(|table| (table.regions().len(), table.arenas().len()));
    let (regions, arenas) = table.unwrap_or_default();
    let entries = [&wire::HEADER[..]].into_iter();
    let entries = entries.chain([&wire::REGION[..]].repeat(regions)).chain([&wire::ARENA[..]].repeat(arenas));
    let mut offset = 0;
    entries
        .flatten()
        .map(|field| {
            let at = offset;
            offset += field.size;
            Edit { offset: at, size: field.size, value: read(sample, at, field.size) }
        })
        .collect()
}

fn read(bytes: &[u8], offset: usize, size: usize) -> u64 {
    bytes[offset..offset + size].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Values near the alignments and the limits of the contract, other than `old`.
fn values(old: u64, size: usize) -> Vec<u64> {
    let steps = [512, PAGE_SIZE, ARENA_ALIGN, SECTION_SIZE];
    let near = steps.into_iter().flat_map(|step| [old.wrapping_add(step), old.wrapping_sub(step)]);
    let mut values: Vec<_> = if size == 4 {
        vec![0, 1, 2, 3, 4, 8, old + 1, 0x1001, u32::MAX.into()]
    } else {
        near.chain([0, ADDRESS_END, u64::MAX]).collect()
    };
    values.retain(|value| *value != old);
    values.sort_unstable();
    values.dedup();
    values
}

/// Two nodes that begin and end within sections, which share a section, holes between regions, arenas that touch, and two
/// held regions.
fn sample() -> Vec<u8> {
    const S: u64 = SECTION_SIZE;
    let node = |region: Region, node| Region { node, ..region };
    let flagged = |region: Region, flags| Region { flags: region.flags | flags, ..region };
    let bytes = |base, end| Region { base, length: end - base, node: 0, flags: RegionFlags::empty() };
    let regions = [
        bytes(1 << 20, 4 * S),
        flagged(region(32, 8), RegionFlags::ZEROED),
        region(48, 2),
        flagged(bytes(64 * S, 68 * S + PAGE_SIZE), RegionFlags::ZEROED),
        node(bytes(68 * S + PAGE_SIZE, 80 * S), 1),
        node(bytes(80 * S + 4 * PAGE_SIZE, 90 * S), 1),
        node(flagged(region(96, 4), RegionFlags::HELD), 1),
        flagged(region(100, 28), RegionFlags::HELD),
    ];
    let next = arena(33 * S + 4 * ARENA_ALIGN, 2);
    encoded(&regions, &[arena(33 * S, 4), next, Arena { node: 1, ..arena(70 * S, 1) }])
}

fn largest() -> Vec<u8> {
    let regions: Vec<_> = (0..).map(|index| region(index, 1)).take(MAX_REGIONS).collect();
    let arenas: Vec<_> = (0..).map(|index| arena(index * ARENA_ALIGN, 1)).take(MAX_ARENAS).collect();
    encoded(&regions, &arenas)
}

/// A region of whole sections.
fn region(base: u64, length: u64) -> Region {
    Region { base: base * SECTION_SIZE, length: length * SECTION_SIZE, node: 0, flags: RegionFlags::empty() }
}

/// An arena of so many huge pages.
fn arena(base: u64, length: u64) -> Arena {
    Arena { base, length: length * ARENA_ALIGN, node: 0 }
}

/// The table of entries that keep every rule; empty otherwise, which no test takes for a table.
fn encoded(regions: &[Region], arenas: &[Arena]) -> Vec<u8> {
    let mut bytes = vec![0; encoded_len(regions.len(), arenas.len())];
    let length = encode(regions, arenas, &mut bytes).unwrap_or_default();
    bytes.truncate(length);
    bytes
}

fn stored_crc(table: &[u8]) -> u64 {
    read(table, CRC32C, 4)
}
