// SPDX-License-Identifier: Apache-2.0
//! The kernel and the hand-off: a good table is taken, a bad one is ignored with one line and the boot goes on.

use std::fs;

use flatboot_bench::guest::Ended;
use flatboot_bench::modes::MODES;
use flatboot_handoff::{Region, RegionFlags, encode, encoded_len};
use libtest_mimic::Failed;
use serde_json::Value;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("handoff::is_taken", taken),
    ("handoff::boots_without", without),
    ("handoff::regions_are_shown", regions_are_shown),
    ("handoff::threads_change_nothing_but_time", threads_change_nothing),
    ("handoff::modes_change_nothing_but_time", modes_change_nothing),
];

const LOG: &str = "memmap_handoff: ";
const MIB: u64 = 1 << 20;

fn taken(lab: &Lab) -> Result<(), Failed> {
    let ended = lab.passes(&lab.guest().checks("dmesg=memmap_handoff: ,nodmesg=memmap_handoff: ignored,handoff"))?;
    let line = ended.report("dmesg").map(|report| report["lines"].to_string()).unwrap_or_default();
    require(line.contains("2 regions"), || line)
}

fn without(lab: &Lab) -> Result<(), Failed> {
    lab.passes(&lab.guest().options(["--study", "handoff=off"]).checks("nodmesg=memmap_handoff: ,meminfo")).map(drop)
}

/// Three holes leave four parts above 4 GiB: the table has each, whole and zero, and with each a region of the kernel's own begins.
fn regions_are_shown(lab: &Lab) -> Result<(), Failed> {
    const SECTION: u64 = 128 * MIB;

    let ended = lab.passes(&lab.guest().memory("size=8G").options(["--study", "holes=3"]).checks("handoff"))?;
    let files = &ended.report("handoff").ok_or("no report")?["files"];
    // 512 MiB are below 4 GiB; of the 60 sections above, each part has 15, and the next one begins a section later.
    let bases = (0..4).map(|part| 4096 * MIB + part * 16 * SECTION);
    let expected: Vec<_> = bases.map(|base| [format!("{base:#x}"), format!("{:#x}", 15 * SECTION)]).collect();
    let table = high(files, "memmap_handoff/regions");
    let listed = expected.iter().map(|[base, length]| vec![base.as_str(), length, "0", "0x1"]);
    require(listed.eq(table.iter().cloned()), || format!("the table has {table:?}, expected {expected:?}"))?;
    let own = high(files, "memmap_regions");
    for [base, _] in &expected {
        let begins = |row: &Vec<&str>| matches!(row[..], [at, _, "0", "0x1", _, "table"] if at == base);
        require(own.iter().any(begins), || format!("no region of the table at {base}: {own:?}"))?;
    }
    Ok(())
}

/// The words of each line of a list of regions whose first, the base, is at or above 4 GiB.
fn high<'a>(files: &'a Value, list: &str) -> Vec<Vec<&'a str>> {
    let rows = files[list].as_str().unwrap_or_default().lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let base = |row: &Vec<&str>| u64::from_str_radix(row.first()?.strip_prefix("0x")?, 16).ok();
    rows.filter(|row| base(row).is_some_and(|base| base >= 4096 * MIB)).collect()
}

/// KiB that kernels may differ by: the plan of deferred memory and the copy of the table take some, and what boot alone needed, which
/// the series has more of, is given back from an image whose parts are padded to 2 MiB.
const IMAGES_KIB: u64 = 64;

/// One thread, all threads, a percentage, no table, and a kernel that lacks all but the marks: the same zones with the
/// same pages, and the same `MemTotal`, but for what plan and image take.
fn threads_change_nothing(lab: &Lab) -> Result<(), Failed> {
    let mut first: Option<(String, Value, u64, u64)> = None;
    let variants = [
        ("stock", "", "off"),
        ("guest", "memmap_init_threads=1", "on"),
        ("guest", "memmap_init_threads=2", "on"),
        ("guest", "memmap_init_threads=50%", "on"),
        ("guest", "", "on"),
        ("guest", "", "off"),
    ];
    for (kernel, parameter, handoff) in variants {
        // Zones have all their pages once init runs only if it waits for them.
        let waits = if kernel == "guest" { "memmap_init=parallel" } else { "" };
        let study = format!("holes=5,handoff={handoff}");
        let mut guest = lab.guest().memory("size=8G").cmdline(waits).cmdline(parameter).options(["--study", &study]);
        guest.kernel = flatboot_bench::artifact::kernel(kernel)?.join("vmlinux");
        let ended = lab.passes(&guest.checks("meminfo"))?;
        let meminfo = ended.report("meminfo").ok_or("no meminfo")?;
        let (shape, managed) = (shape(meminfo), managed_kib(meminfo));
        let total = meminfo["total_kib"].as_u64().ok_or("no MemTotal")?;
        let name = format!("{kernel} {parameter} handoff={handoff}");
        match &first {
            None => first = Some((name, shape, managed, total)),
            Some((other, expected, most_managed, most)) => {
                require(shape == *expected, || format!("{other}: {expected}\n{name}: {shape}"))?;
                let fits = |had: u64, has: u64| had.abs_diff(has) <= IMAGES_KIB;
                require(fits(*most_managed, managed) && fits(*most, total), || {
                    format!("{other}: {most_managed} KiB managed, MemTotal {most}\n{name}: {managed}, {total}")
                })?;
            }
        }
    }
    Ok(())
}

/// The kernel does what every mode in our list asks for, and what it does by default if the mode is none; memory is the
/// same in all of them. A cap on threads is there each time, and below the number of CPUs: serial has one all the same.
fn modes_change_nothing(lab: &Lab) -> Result<(), Failed> {
    let guest = |mode: &str, dmesg: &str| {
        let guest = lab.guest().cpus(4).memory("size=4G").cmdline(mode).cmdline("memmap_init_threads=3");
        lab.passes(&guest.checks(&format!("{dmesg}=memmap_init: ignored,handoff,meminfo")))
    };
    let nonsense = guest("memmap_init=nonsense", "dmesg")?;
    require(node_0(&nonsense)? == ("async".to_owned(), 3), || format!("by default: {:?}", nonsense.reports))?;
    let warning = nonsense.report("dmesg").ok_or("no report")?;
    let line = warning["lines"][0].as_str().unwrap_or_default();
    let modes = || MODES.iter().filter(|mode| !mode.is_stock());
    let named = modes().all(|mode| line.contains(mode.name)) && line.contains("'nonsense'");
    require(warning["count"] == 1 && named, || format!("expected one line with 'nonsense' and all modes: {warning}"))?;

    let total = |ended: &Ended| ended.report("meminfo").map(|meminfo| meminfo["total_kib"].clone());
    for mode in modes() {
        let ended = guest(&mode.cmdline(None), "nodmesg")?;
        let threads = if mode.name == "serial" { 1 } else { 3 };
        let shown = node_0(&ended)?;
        require(shown == (mode.name.to_owned(), threads), || format!("{}: the kernel shows {shown:?}", mode.name))?;
        let (total, expected) = (total(&ended), total(&nonsense));
        require(total == expected, || format!("{}: MemTotal {total:?} instead of {expected:?}", mode.name))?;
    }
    Ok(())
}

/// The mode in effect and the most threads, as debugfs shows them for the one node, some of whose memory was deferred.
fn node_0(ended: &Ended) -> Result<(String, u32), Failed> {
    let files = &ended.report("handoff").ok_or("no report")?["files"];
    let nodes = files["memmap_nodes"].as_str().ok_or_else(|| format!("no memmap_nodes: {files}"))?;
    let line: Vec<_> = nodes.lines().nth(1).unwrap_or_default().split(' ').collect();
    match line[..] {
        ["0", threads, _, sections, _, mode, _, _] if sections != "0" => Ok((mode.to_owned(), threads.parse()?)),
        _ => Err(format!("node 0 is not as documented, or has nothing deferred: {nodes:?}").into()),
    }
}

/// What must not depend on how the memmap was filled: zones with their pages. Free pages vary from boot to boot.
fn shape(meminfo: &Value) -> Value {
    let zones = meminfo["zones"].as_array().into_iter().flatten();
    zones
        .map(|zone| {
            let fields = ["zone", "start_pfn", "spanned", "present"];
            fields.iter().map(|field| ((*field).to_owned(), zone[*field].clone())).collect::<serde_json::Map<_, _>>()
        })
        .map(Value::from)
        .collect()
}

/// Memory of all zones that the page allocator has, or has given out.
fn managed_kib(meminfo: &Value) -> u64 {
    let zones = meminfo["zones"].as_array().into_iter().flatten();
    zones.filter_map(|zone| zone["managed"].as_u64()).sum::<u64>() * 4
}

/// The table of a VM with 1 GiB.
fn table() -> Vec<u8> {
    let region = |base, length, flags| Region { base, length, node: 0, flags };
    let regions = [region(MIB, 511 * MIB, RegionFlags::empty()), region(4096 * MIB, 512 * MIB, RegionFlags::ZEROED)];
    let mut bytes = vec![0; encoded_len(regions.len(), 0)];
    // The rules allow it; a table that is none makes the tests below fail.
    let _ = encode(&regions, &[], &mut bytes);
    bytes
}

/// Where the fields are (vmm/handoff says so, too, but a test that used its writer could not break its rules).
const CRC: usize = 24;
const FIRST: usize = 40;
const SECOND: usize = FIRST + 24;

fn put(table: &mut [u8], at: usize, bytes: &[u8]) {
    table[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Makes the checksum right again, so that the rule behind it is what refuses the table.
fn seal(table: &mut [u8]) {
    put(table, CRC, &[0; 4]);
    let crc = crc32c(table);
    put(table, CRC, &crc.to_le_bytes());
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    })
}

type Break = fn(&mut Vec<u8>);

/// Every field broken, with the checksum right unless it is what is broken.
const BROKEN: [(&str, Break); 20] = [
    ("magic", |t| put(t, 0, b"FLATBOOX")),
    ("version", |t| put(t, 8, &1u32.to_le_bytes())),
    ("length_short", |t| put(t, 12, &64u32.to_le_bytes())),
    ("length_long", |t| put(t, 12, &u32::MAX.to_le_bytes())),
    ("no_regions", |t| put(t, 16, &0u32.to_le_bytes())),
    ("too_many_regions", |t| put(t, 16, &u32::MAX.to_le_bytes())),
    ("too_many_arenas", |t| put(t, 20, &u32::MAX.to_le_bytes())),
    ("header_length", |t| put(t, 28, &48u32.to_le_bytes())),
    ("reserved", |t| put(t, 32, &1u64.to_le_bytes())),
    ("base_unaligned", |t| put(t, SECOND, &(4097 * MIB).to_le_bytes())),
    ("base_outside_ram", |t| put(t, SECOND, &(8192 * MIB).to_le_bytes())),
    ("base_beyond_address_space", |t| put(t, SECOND, &(1u64 << 60).to_le_bytes())),
    ("length_zero", |t| put(t, SECOND + 8, &0u64.to_le_bytes())),
    ("length_outside_ram", |t| put(t, SECOND + 8, &(1024 * MIB).to_le_bytes())),
    ("length_wraps", |t| put(t, SECOND + 8, &(u64::MAX << 27).to_le_bytes())),
    ("node", |t| put(t, SECOND + 16, &77u32.to_le_bytes())),
    ("flags", |t| put(t, SECOND + 20, &0x8000_0000u32.to_le_bytes())),
    ("flag_of_version_1", |t| put(t, SECOND + 20, &2u32.to_le_bytes())),
    ("order", |t| t[FIRST..].rotate_left(24)),
    ("overlap", |t| t.copy_within(FIRST..SECOND, SECOND)),
];

/// Tables that the kernel must ignore.
pub(crate) fn corrupted() -> impl Iterator<Item = (String, Vec<u8>)> {
    let fields = BROKEN.iter().map(|(name, break_it)| {
        let mut table = table();
        break_it(&mut table);
        seal(&mut table);
        ((*name).to_owned(), table)
    });
    let checksum = {
        let mut table = table();
        table[CRC] ^= 1;
        ("checksum".to_owned(), table)
    };
    let truncated = [1, 39, 40, 63].map(|length| (format!("truncated_to_{length}"), table()[..length].to_vec()));
    let random = (1..=2u64).map(|seed| (format!("random_{seed}"), noise(seed)));
    fields.chain([checksum]).chain(truncated).chain(random)
}

/// 4 KiB of xorshift noise: the same at every run.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..512).flat_map(|_| next()).collect()
}

/// The kernel says in one line that it ignores `table`, and boots with all its memory.
pub(crate) fn is_ignored(lab: &Lab, table: &[u8]) -> Result<(), Failed> {
    let path = lab.path("table.bin");
    fs::write(&path, table)?;
    let guest = lab.guest().options(["--study".to_owned(), format!("handoff_file={}", path.display())]);
    let ended = lab.passes(&guest.checks("dmesg=memmap_handoff: ,meminfo"))?;
    let report = ended.report("dmesg").ok_or("no report")?;
    let ignored = report["lines"][0].as_str().is_some_and(|line| line.contains(&format!("{LOG}ignored: ")));
    require(report["count"] == 1 && ignored, || format!("expected one line \"{LOG}ignored: …\": {report}"))
}
