// SPDX-License-Identifier: Apache-2.0
//! What flatboot prints: maps that add up, and no panic when nobody reads.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::FLATBOOT;

const MIB: u64 = 1 << 20;

/// `--study`, rest of `--memory`, what of the JSON follows from it, and how that is.
const SWITCHES: [(&str, &str, &str, &str); 15] = [
    ("holes=0", "", "/slots/0/end", "536870912"),
    ("layout=pc", "", "/slots/0/end", "3221225472"),
    ("holes=0", ",hugepages=on,hugepage_size=1G", "/slots/0/end", "1073741824"),
    ("holes=0", ",hugepages=on,hugepage_size=1G", "/page_size", "1073741824"),
    ("arenas=off", "", "/hand_off/arenas", "[]"),
    ("arenas=off", "", "/host/thp", r#"[{"end":134217728,"start":0},{"end":4429185024,"start":4294967296}]"#),
    ("holes=0", ",thp=off", "/host/thp", "[]"),
    ("holes=0", "", "/hand_off/regions/1/flags", r#"["ZEROED"]"#),
    ("zeroed=off", "", "/hand_off/regions/1/flags", "[]"),
    ("holes=0", ",prefault=on,hugepages=on", "/hand_off/regions/1/flags", r#"["ZEROED"]"#),
    ("holes=0", ",prefault=on", "/host/prefault/1", r#"{"end":8053063680,"start":4294967296}"#),
    ("prefault_arenas=on", "", "/host/prefault", r#"[{"end":8048869376,"start":7981760512}]"#),
    ("holes=0", "", "/host/early", r#"[{"end":7983857664,"start":7981760512}]"#),
    ("early=off", "", "/host/early", "[]"),
    ("holes=0", ",thp=off", "/host/thp", "[]"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let sizes = [
        ("size=256M", 256 * MIB, 0),
        ("size=1G", 1024 * MIB, 0),
        ("size=3G", 3072 * MIB, 0),
        ("size=5124M", 5124 * MIB, 0),
        ("size=64G", 65536 * MIB, 0),
        ("size=256G --study holes=63", 262_144 * MIB, 63),
        ("size=64G,prefault=on --study layout=pc,arenas=off,zeroed=off", 65536 * MIB, 0),
    ];
    let maps = sizes.into_iter().map(|(memory, size, holes)| {
        Trial::test(format!("map of {memory} adds up"), move || a_map_adds_up(memory, size, holes))
    });
    let switches = SWITCHES.map(|(study, memory, pointer, expected)| {
        let name = format!("map shows --study {study} --memory size=4G{memory} in {pointer}");
        Trial::test(name, move || a_switch_shows(study, memory, pointer, expected))
    });
    let others = [
        Trial::test("help and version are answers", help_and_version),
        Trial::test("nobody reads standard output", nobody_reads_output),
        Trial::test("nobody reads standard error", nobody_reads_errors),
        Trial::test("standard streams are closed", streams_are_closed),
        Trial::test("standard output is full", output_is_full),
        Trial::test("arguments that are no UTF-8", no_utf8),
        Trial::test("a log filter that is none", wrong_log_filter),
    ];
    maps.chain(switches).chain(others).collect()
}

fn flatboot(arguments: &[&str]) -> Command {
    let mut command = Command::new(FLATBOOT);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn succeeds(arguments: &[&str]) -> Result<String, Failed> {
    let Output { status, stdout, stderr } = flatboot(arguments).output()?;
    assert!(status.success() && stderr.is_empty(), "{status}: {}", String::from_utf8_lossy(&stderr));
    Ok(String::from_utf8(stdout)?)
}

/// The members `start` and `end` of each element.
fn ranges(list: &Value) -> Vec<(u64, u64)> {
    let list = list.as_array().expect("a list");
    list.iter().map(|range| (range["start"].as_u64().expect("start"), range["end"].as_u64().expect("end"))).collect()
}

fn length(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

fn sorted_and_disjoint(ranges: &[(u64, u64)]) -> bool {
    ranges.iter().all(|(start, end)| start < end) && ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0)
}

fn a_switch_shows(study: &str, memory: &str, pointer: &str, expected: &str) -> Result<(), Failed> {
    let memory = format!("size=4G{memory}");
    let map = ["map", "--cpus", "boot=2", "--memory", &memory, "--study", study, "--json"];
    let json: Value = serde_json::from_str(&succeeds(&map)?)?;
    let shown = json.pointer(pointer).ok_or_else(|| format!("no {pointer}: {json}"))?;
    assert_eq!(shown.to_string(), expected);
    Ok(())
}

fn a_map_adds_up(memory: &str, size: u64, holes: usize) -> Result<(), Failed> {
    let map: Vec<_> = ["map", "--cpus", "boot=4", "--memory"].into_iter().chain(memory.split(' ')).collect();
    let json: Value = serde_json::from_str(&succeeds(&[map.as_slice(), &["--json"]].concat())?)?;
    assert_eq!((json["size"].as_u64(), json["cpus"].as_u64()), (Some(size), Some(4)));
    let slots = ranges(&json["slots"]);
    assert!(sorted_and_disjoint(&slots), "{slots:?}");
    assert_eq!(length(&slots), size);
    assert_eq!(slots.len(), if size <= 512 * MIB { 1 } else { holes + 2 });

    let hand_off = &json["hand_off"];
    let (regions, arenas) = (ranges(&hand_off["regions"]), ranges(&hand_off["arenas"]));
    assert!(sorted_and_disjoint(&regions) && sorted_and_disjoint(&arenas));
    // All RAM from 1 MiB up is in a region, every arena in one of them.
    assert_eq!(length(&regions), size - MIB);
    for (start, end) in &arenas {
        assert!(regions.iter().any(|region| region.0 <= *start && *end <= region.1), "{start:#x}");
    }
    let table = 40 + 24 * (regions.len() + arenas.len());
    assert_eq!(hand_off["length"].as_u64(), Some(table as u64));
    let e820 = ranges(&json["e820"]);
    assert!(sorted_and_disjoint(&e820) && e820.len() <= 128);
    let ram: Vec<_> = e820.iter().filter(|(start, _)| slots.iter().any(|slot| slot.0 <= *start)).copied().collect();
    assert!(length(&ram) <= size && length(&ram) >= size - MIB);

    let text = succeeds(&map)?;
    assert!(text.starts_with("4 vCPUs, ") && text.ends_with('\n') && !text.ends_with("\n\n"), "{text}");
    let rows: Vec<(u64, u64, &str)> = text.lines().filter_map(row).collect();
    assert!(rows.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{text}");
    let found = |what: &str| -> Vec<(u64, u64)> {
        rows.iter().filter(|(.., name)| name.contains(what)).map(|&(start, end, _)| (start, end)).collect()
    };
    assert_eq!((found("KVM slot"), found("region "), found("memmap arena")), (slots, regions, arenas), "{text}");
    Ok(())
}

/// START, END and WHAT of a row of the table.
fn row(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.strip_prefix("0x")?.split_once("  0x")?;
    let (end, what) = rest.split_once(' ')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, what))
}

fn help_and_version() -> Result<(), Failed> {
    for arguments in
        [&["--help"][..], &["-h"], &["run", "--help"], &["map", "--help"], &["check", "--help"], &["--version"]]
    {
        assert!(succeeds(arguments)?.ends_with('\n'), "{arguments:?}");
    }
    Ok(())
}

/// A pipe that nobody reads from.
fn broken() -> io::Result<Stdio> {
    let (reader, writer) = io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

/// It ends with `status`, by itself.
fn ends_with(command: &mut Command, status: i32) -> Result<String, Failed> {
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(status) && !errors.contains("panicked") {
        return Ok(errors);
    }
    Err(format!("{command:?}: {}, should be {status}: {errors}", output.status).into())
}

fn nobody_reads_output() -> Result<(), Failed> {
    let map = ["map", "--memory", "size=256G", "--study", "holes=63"];
    for arguments in [&map[..], &["map", "--json"], &["--help"], &["run", "--help"], &["--version"]] {
        assert_eq!(ends_with(flatboot(arguments).stdout(broken()?), 0)?, "");
    }
    let status = flatboot(&["check"]).output()?.status.code().expect("an exit status");
    for arguments in [&["check"][..], &["check", "--json"]] {
        ends_with(flatboot(arguments).stdout(broken()?), status)?;
    }
    Ok(())
}

fn nobody_reads_errors() -> Result<(), Failed> {
    for (arguments, status) in
        [(&["run", "--kernel", "/"][..], 1), (&["run"], 2), (&["map", "--kernel", "/"], 1), (&[], 2)]
    {
        ends_with(flatboot(arguments).stderr(broken()?), status)?;
        ends_with(flatboot(arguments).stderr(File::options().write(true).open("/dev/full")?), status)?;
    }
    Ok(())
}

fn streams_are_closed() -> Result<(), Failed> {
    for (arguments, closed, status) in [
        ("map", ">&-", 0),
        ("map --json", "<&- >&- 2>&-", 0),
        ("--help", ">&-", 0),
        ("start", "2>&-", 2),
        ("run --kernel /", "<&- >&- 2>&-", 1),
    ] {
        let script = format!("\"$0\" {arguments} {closed}");
        assert_eq!(ends_with(Command::new("sh").args(["-c", &script, FLATBOOT]), status)?, "", "{script}");
    }
    Ok(())
}

/// Unlike a reader that went away, a full disk has lost what was asked for.
fn output_is_full() -> Result<(), Failed> {
    for arguments in [&["map"][..], &["map", "--json"], &["--help"], &["check"]] {
        let errors = ends_with(flatboot(arguments).stdout(File::options().write(true).open("/dev/full")?), 1)?;
        assert_eq!(
            errors, "flatboot: error: standard output: No space left on device (os error 28)\n",
            "{arguments:?}"
        );
    }
    Ok(())
}

fn no_utf8() -> Result<(), Failed> {
    let bytes = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    let errors = ends_with(flatboot(&["run", "--kernel", "k", "--cmdline"]).arg(bytes(b"a\xffb")), 2)?;
    assert_eq!(errors, "flatboot: error: \"a\u{fffd}b\": must be UTF-8\n");
    // A path may be anything.
    let errors = ends_with(flatboot(&["run", "--kernel"]).arg(bytes(b"/no\xff")), 1)?;
    assert_eq!(errors, "flatboot: error: --kernel /no\u{fffd}: there is no such file: must exist\n");
    Ok(())
}

fn wrong_log_filter() -> Result<(), Failed> {
    let errors = ends_with(flatboot(&["map"]).env("FLATBOOT_LOG", "flatboot=loud").stdout(Stdio::null()), 2)?;
    let must = "must be error, warn, info, debug or trace, or a filter like flatboot::vm=debug";
    assert_eq!(errors, format!("flatboot: error: FLATBOOT_LOG=flatboot=loud: {must}\n"));
    Ok(())
}
