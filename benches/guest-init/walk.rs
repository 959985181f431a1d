// SPDX-License-Identifier: Apache-2.0
//! All that shows every page, or makes the kernel look at every page.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::files;
use crate::memory::{self, PAGE, meminfo_kib};
use crate::outcome::Outcome;

/// One word of eight bytes for each page frame.
const PER_PAGE: [&str; 3] = ["/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup"];
const TEXTS: [&str; 6] =
    ["/proc/pagetypeinfo", "/proc/zoneinfo", "/proc/buddyinfo", "/proc/vmstat", "/proc/meminfo", "/proc/iomem"];
const NODES: &str = "/sys/devices/system/node";

/// linux/kernel-page-flags.h: bits of /proc/kpageflags.
const BUDDY: u64 = 1 << 10;
const NOPAGE: u64 = 1 << 20;

const WORD: usize = 8;
/// Bytes read at a time, and the part of a per-page file that describes one section of 128 MiB.
const BUFFER: usize = 256 << 10;
/// Bytes that [`glance`] reads at the start of each section.
const GLANCE: usize = 4096;

/// What /proc/kpageflags says, in page frames.
#[derive(Debug, Default, PartialEq, Eq)]
struct Flags {
    frames: u64,
    no_page: u64,
    /// Of these, how many are memory: all others are holes.
    no_page_of_ram: u64,
    free: u64,
}

impl Flags {
    /// Takes the next word; `ram` is where memory is.
    fn see(&mut self, word: u64, ram: &[Range<u64>]) {
        let is_ram = || ram.iter().any(|range| range.contains(&self.frames));
        self.no_page_of_ram += u64::from(word & NOPAGE != 0 && is_ram());
        self.no_page += u64::from(word & NOPAGE != 0);
        self.free += u64::from(word & BUDDY != 0);
        self.frames += 1;
    }
}

/// Reads everything there is about pages, has memory compacted and caches dropped, and compares what the kernel says.
pub(crate) fn walk() -> Outcome {
    let before = files::text("/proc/meminfo")?;
    let flags = read_flags(&ram(&files::text("/proc/iomem")?)?)?;
    let mut frames = Vec::new();
    for path in PER_PAGE {
        frames.push(count_frames(path)?);
    }
    for path in TEXTS {
        files::text(path)?;
    }
    let blocks = memory_blocks()?;
    memory::drop_and_compact()?;
    let nodes_kib = sum_of_nodes("MemTotal")?;
    let after = files::text("/proc/meminfo")?;
    let kib = |text: &str, name| meminfo_kib(text, name).unwrap_or(0);
    let (first, last) = (kib(&before, "MemDeferred"), kib(&after, "MemDeferred"));
    let total = kib(&after, "MemTotal");
    let complaints = complaints(&flags, &frames, total, (first, last), nodes_kib);
    let report = json!({
        "complaints": complaints, "frames": flags.frames, "no_page": flags.no_page,
        "no_page_of_ram": flags.no_page_of_ram, "free": flags.free,
        "blocks": blocks, "total_kib": total, "deferred_before_kib": first, "deferred_after_kib": last,
    });
    Ok((complaints.is_empty(), report))
}

/// What was deferred before and after was deferred in between, and has no page to be shown; all else that the allocator
/// has, does.
fn complaints(flags: &Flags, frames: &[u64], total: u64, deferred: (u64, u64), nodes: u64) -> Vec<String> {
    let (before, after) = deferred;
    let shown = (flags.frames - flags.no_page) * 4;
    let mut complaints = Vec::new();
    let mut complain = |wrong: bool, what: String| complaints.extend(wrong.then_some(what));
    complain(
        flags.no_page_of_ram * 4 < after,
        format!("pages that are deferred are shown: {flags:?}, {after} KiB deferred"),
    );
    complain(shown + before < total, format!("pages are not shown: {flags:?}, {total} KiB, {before} KiB deferred"));
    complain(frames.iter().any(|n| *n != flags.frames), format!("files of different lengths: {frames:?}, {flags:?}"));
    complain(nodes != total, format!("MemTotal is {total} KiB, that of all nodes {nodes} KiB"));
    complaints
}

fn read_flags(ram: &[Range<u64>]) -> Result<Flags, String> {
    let mut flags = Flags::default();
    each_word("/proc/kpageflags", |word| flags.see(word, ram))?;
    Ok(flags)
}

/// The page frames that are memory, as /proc/iomem has it in `text`.
fn ram(text: &str) -> Result<Vec<Range<u64>>, String> {
    // What has a space before it is in another resource.
    let ranges =
        text.lines().filter_map(|line| line.strip_suffix(" : System RAM")).filter(|line| !line.starts_with(' '));
    let page = |address: &str| u64::from_str_radix(address, 16).ok().map(|address| address / PAGE as u64);
    let frames = |line: &str| line.split_once('-').and_then(|(from, to)| Some(page(from)?..page(to)? + 1));
    ranges.map(|line| frames(line).ok_or_else(|| format!("/proc/iomem: {line:?} is no range"))).collect()
}

fn count_frames(path: &str) -> Result<u64, String> {
    let mut frames = 0;
    each_word(path, |_| frames += 1)?;
    Ok(frames)
}

fn each_word(path: &str, mut see: impl FnMut(u64)) -> Result<(), String> {
    let failed = |error| format!("{path}: {error}");
    let mut file = File::open(path).map_err(failed)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        // The kernel gives whole words.
        let length = file.read(&mut buffer).map_err(failed)?;
        if length == 0 {
            return Ok(());
        }
        buffer[..length]
            .chunks_exact(WORD)
            .filter_map(|word| word.try_into().ok())
            .map(u64::from_ne_bytes)
            .for_each(&mut see);
    }
}

/// The first pages of every section, and all text: a quick look, to be taken again and again. How many files were read.
pub(crate) fn glance() -> Result<u64, String> {
    for path in PER_PAGE {
        let failed = |error| format!("{path}: {error}");
        let file = File::open(path).map_err(failed)?;
        let mut words = [0; GLANCE];
        let mut at = 0;
        while file.read_at(&mut words, at).map_err(failed)? > 0 {
            at += BUFFER as u64;
        }
    }
    for path in TEXTS {
        files::text(path)?;
    }
    Ok((PER_PAGE.len() + TEXTS.len()) as u64)
}

/// Reads what sysfs shows of memory blocks; how many there are, none if this kernel has no memory hot-plug.
fn memory_blocks() -> Result<u64, String> {
    let blocks = memory::blocks();
    for block in &blocks {
        for file in ["state", "valid_zones", "removable"] {
            match fs::read_to_string(format!("{}/{block}/{file}", memory::BLOCKS)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(format!("{block}/{file}: {error}")),
                _ => {}
            }
        }
    }
    Ok(blocks.len() as u64)
}

/// KiB of `name` in the meminfo of all nodes.
fn sum_of_nodes(name: &str) -> Result<u64, String> {
    let mut sum = 0;
    for node in files::numbered(NODES, "node") {
        let text = files::text(format!("{NODES}/{node}/meminfo"))?;
        sum += memory::node_meminfo_kib(&text, name).ok_or_else(|| format!("{node}/meminfo: no {name}"))?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deferred_pages_are_not_shown() {
        let flags = Flags { frames: 1800, no_page: 1100, no_page_of_ram: 300, free: 1 };
        let said = |frames: &[u64], total, deferred, nodes| complaints(&flags, frames, total, deferred, nodes).len();
        assert_eq!(said(&[1800; 3], 3600, (1200, 1100), 3600), 0);
        assert_eq!(said(&[1800; 3], 3600, (1204, 1204), 3600), 1, "a deferred page is shown");
        assert_eq!(said(&[1800; 3], 4004, (1200, 1100), 4004), 1, "a page is not shown");
        assert_eq!(said(&[1800, 1799, 1800], 3600, (1200, 1100), 3600), 1);
        assert_eq!(said(&[1800; 3], 3600, (1200, 1100), 3596), 1);
    }

    #[test]
    fn holes_are_not_deferred() {
        let text = "00000000-00000fff : Reserved\n00001000-00003fff : System RAM\n  00001000-00001fff : Kernel code\n\
                    00006000-00007fff : System RAM\n  00006000-00006fff : System RAM\n";
        let ram = ram(text).unwrap();
        assert_eq!(ram, [1..4, 6..8]);
        let mut flags = Flags::default();
        for word in [NOPAGE, 0, NOPAGE, BUDDY, NOPAGE, NOPAGE, 0, NOPAGE] {
            flags.see(word, &ram);
        }
        assert_eq!(flags, Flags { frames: 8, no_page: 5, no_page_of_ram: 2, free: 1 });
        assert!(super::ram("x-y : System RAM").is_err());
    }
}
