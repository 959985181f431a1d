// SPDX-License-Identifier: Apache-2.0
//! Checks of memory: what the kernel counts, and whether it is really there.

use std::fs;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::files;
use crate::outcome::Outcome;

pub(crate) const PAGE: usize = 4096;
/// One allocation; small enough that the last ones come close to what is free.
const CHUNK_PAGES: u32 = 1024;

/// Totals of /proc/meminfo, and every zone of /proc/zoneinfo.
pub(crate) fn meminfo() -> Outcome {
    let meminfo = files::text("/proc/meminfo")?;
    let kib = |name| meminfo_kib(&meminfo, name).map_or(Value::Null, Value::from);
    let zones = zones(&files::text("/proc/zoneinfo")?);
    let fields = json!({
        "total_kib": kib("MemTotal"), "free_kib": kib("MemFree"), "available_kib": kib("MemAvailable"),
        "deferred_kib": kib("MemDeferred"), "zones": zones, "blocks": blocks().len(),
    });
    Ok((!fields["total_kib"].is_null(), fields))
}

/// Where memory blocks are.
pub(crate) const BLOCKS: &str = "/sys/devices/system/memory";

/// Names of the memory blocks in sysfs; none if this kernel has no memory hot-plug.
pub(crate) fn blocks() -> Vec<String> {
    files::numbered(BLOCKS, "memory")
}

/// How long memory may take to come or to go: others may have their turn before.
const RESIZED: Duration = Duration::from_secs(600);
/// What `MemTotal` was when it was first asked for.
static BASE: OnceLock<u64> = OnceLock::new();

/// Waits until `MemTotal` is `amount` more than at first. Of what comes, a 64th may be taken by the memmap for it.
pub(crate) fn total(amount: &str) -> Outcome {
    let more = amount_kib(amount)?;
    let first = kib("MemTotal")?;
    let base = *BASE.get_or_init(|| first);
    let expected = base + more - more.div_ceil(64)..=base + more;
    let start = Instant::now();
    let mut total = first;
    while !expected.contains(&total) && start.elapsed() < RESIZED {
        sleep(Duration::from_millis(20));
        total = kib("MemTotal")?;
    }
    Ok((expected.contains(&total), json!({ "base_kib": base, "total_kib": total })))
}

/// KiB of a line of /proc/meminfo as it is now.
pub(crate) fn kib(name: &str) -> Result<u64, String> {
    meminfo_kib(&files::text("/proc/meminfo")?, name).ok_or_else(|| format!("/proc/meminfo: no {name}"))
}

/// KiB of a line of /proc/meminfo.
pub(crate) fn meminfo_kib(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches("kB").trim_end().parse().ok()
}

/// KiB of a line of a node's meminfo, where every line starts with `Node N `.
pub(crate) fn node_meminfo_kib(meminfo: &str, name: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| meminfo_kib(line.splitn(3, ' ').nth(2)?, name))
}

/// The sum of all lines of /proc/vmstat whose name is, or begins with, `name`.
pub(crate) fn vmstat_sum(vmstat: &str, name: &str) -> u64 {
    let lines = vmstat.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.split_once(' ')?.1.parse::<u64>().ok()).sum()
}

/// Has the kernel drop its caches, then merge what is free into blocks as large as can be.
pub(crate) fn drop_and_compact() -> Result<(), String> {
    // 4: drops are not logged from now on.
    for (file, value) in [("drop_caches", "4"), ("drop_caches", "3"), ("compact_memory", "1")] {
        let path = format!("/proc/sys/vm/{file}");
        fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// An amount of memory in KiB: `N%` of what is available now, or `NM` (MiB).
pub(crate) fn amount_kib(amount: &str) -> Result<u64, String> {
    let wrong = || format!("{amount:?}: expected an amount such as 95% or 512M");
    let (number, unit) = amount.split_at_checked(amount.len().saturating_sub(1)).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match unit {
        "M" => Ok(number << 10),
        "%" => Ok(kib("MemAvailable")? * number / 100),
        _ => Err(wrong()),
    }
}

/// `{node, zone, spanned, present, managed, free, start_pfn}`, in pages, of each zone that spans any.
fn zones(zoneinfo: &str) -> Vec<Value> {
    let mut zones = Vec::new();
    let mut zone = serde_json::Map::new();
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("Node"), Some(node), Some("zone"), Some(name)) => {
                push(&mut zones, &mut zone);
                zone.insert("node".into(), node.trim_end_matches(',').parse::<u64>().unwrap_or(u64::MAX).into());
                zone.insert("zone".into(), name.into());
            }
            (Some("pages"), Some("free"), Some(value), None) => insert(&mut zone, "free", value),
            (Some(name @ ("spanned" | "present" | "managed")), Some(value), None, None) => {
                insert(&mut zone, name, value);
            }
            (Some("start_pfn:"), Some(value), None, None) => insert(&mut zone, "start_pfn", value),
            _ => {}
        }
    }
    push(&mut zones, &mut zone);
    zones
}

/// The first value counts: a zone's totals come before its per-CPU lists.
fn insert(zone: &mut serde_json::Map<String, Value>, name: &str, value: &str) {
    if let Ok(value) = value.parse::<u64>() {
        zone.entry(name).or_insert(value.into());
    }
}

fn push(zones: &mut Vec<Value>, zone: &mut serde_json::Map<String, Value>) {
    if zone.get("spanned").and_then(Value::as_u64).is_some_and(|spanned| spanned > 0) {
        zones.push(Value::Object(std::mem::take(zone)));
    }
    zone.clear();
}

/// Does nothing for so long. Who has had free memory since it began looks for none: nobody has compacted or reclaimed.
pub(crate) fn rest(seconds: &str) -> Outcome {
    let seconds = seconds.parse().map_err(|_| format!("rest={seconds}: expected seconds"))?;
    sleep(Duration::from_secs(seconds));
    let vmstat = files::text("/proc/vmstat")?;
    let deferred = meminfo_kib(&files::text("/proc/meminfo")?, "MemDeferred");
    let [compacted, reclaimed] = ["compact_migrate_scanned", "pgscan_"].map(|name| vmstat_sum(&vmstat, name));
    let fields = json!({ "compacted": compacted, "reclaimed": reclaimed, "deferred_kib": deferred });
    Ok((compacted == 0 && reclaimed == 0, fields))
}

/// Takes memory until little is left, each page with a value of its own, then reads all of it back: a page that the
/// kernel gave out twice, or that is not memory, has the wrong value.
pub(crate) fn alloc() -> Outcome {
    let reserve = reserve_kib()?;
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut pages: u64 = 0;
    // MemFree, not MemAvailable: beyond it the kernel would take back pages, and in the end kill us.
    while kib("MemFree")? > reserve {
        chunks.push(chunk(pages));
        pages += u64::from(CHUNK_PAGES);
    }
    let values = chunks.iter().flat_map(|chunk| chunk.chunks_exact(PAGE)).map(value_of);
    let wrong = (0..pages).zip(values).filter(|(page, value)| expected(*page) != *value).count();
    let left = kib("MemFree")?;
    let fields = json!({ "pages": pages, "wrong": wrong, "free_kib_left": left });
    Ok((wrong == 0 && pages > 0, fields))
}

/// Memory that a check holds, each page with its own value.
pub(crate) struct Held {
    chunks: Vec<Vec<u8>>,
    /// How often they have been given other values.
    renewals: u64,
}

impl Held {
    /// So many chunks of it.
    pub(crate) fn take(chunks: u64) -> Self {
        Self { chunks: (0..chunks).map(|index| chunk(index * u64::from(CHUNK_PAGES))).collect(), renewals: 0 }
    }

    /// How many pages there are, and how many do not have their value any more.
    pub(crate) fn look(&self) -> (u64, usize) {
        let values: Vec<u64> = self.chunks.iter().flat_map(|chunk| chunk.chunks_exact(PAGE)).map(value_of).collect();
        let pages = values.len() as u64;
        (pages, self.values().zip(values).filter(|(expected, value)| expected != value).count())
    }

    /// The same, and gives each of them another value.
    pub(crate) fn renew(&mut self) -> (u64, usize) {
        let seen = self.look();
        self.renewals += 1;
        let values = self.values();
        let pages = self.chunks.iter_mut().flat_map(|chunk| chunk.chunks_exact_mut(PAGE));
        values.zip(pages).for_each(|(value, page)| put(page, value));
        seen
    }

    /// What each page has, in order.
    fn values(&self) -> impl Iterator<Item = u64> + use<> {
        (self.renewals << u32::BITS..).map(expected)
    }
}

/// What stays untouched: twice what the kernel keeps for itself in all zones, the table of our own pages, and 4 MiB for
/// everything else.
fn reserve_kib() -> Result<u64, String> {
    Ok(high_kib()? * 2 + kib("MemTotal")? / 512 + (4 << 10))
}

/// With less than this free the kernel looks for more.
pub(crate) fn high_kib() -> Result<u64, String> {
    Ok(zone_sum(&files::text("/proc/zoneinfo")?, "high") * 4)
}

fn zone_sum(zoneinfo: &str, name: &str) -> u64 {
    let lines = zoneinfo.lines().filter_map(|line| line.trim_start().strip_prefix(name));
    lines.filter_map(|rest| rest.strip_prefix(' ')?.trim().parse::<u64>().ok()).sum()
}

/// Pages numbered from `first`.
fn chunk(first: u64) -> Vec<u8> {
    // Zeroed by the kernel as it is touched: writing it all ourselves would only cost time.
    let mut chunk = vec![0; CHUNK_PAGES as usize * PAGE];
    for (page, bytes) in (first..).zip(chunk.chunks_exact_mut(PAGE)) {
        give_value(bytes, page);
    }
    chunk
}

/// Gives a page its value.
fn put(page: &mut [u8], value: u64) {
    page[..8].copy_from_slice(&value.to_le_bytes());
    page[PAGE - 8..].copy_from_slice(&(!value).to_le_bytes());
}

/// Gives a page the value of its number.
pub(crate) fn give_value(bytes: &mut [u8], page: u64) {
    put(bytes, expected(page));
}

/// Whether a page has the value of its number.
pub(crate) fn has_value(bytes: &[u8], page: u64) -> bool {
    value_of(bytes) == expected(page)
}

/// The value of a page: of its first word if its last word agrees.
fn value_of(page: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let (first, last) = (word(&page[..8]), word(&page[PAGE - 8..]));
    if first == !last { first } else { 0 }
}

/// Distinct for every page, and never zero, as an odd number times an odd number is odd.
fn expected(page: u64) -> u64 {
    (2 * page + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_held_is_seen_to_be_lost() {
        let mut held = Held::take(1);
        let stale = held.chunks[0][..PAGE].to_vec();
        assert_eq!(held.renew(), (1024, 0));
        assert_eq!(held.renew(), (1024, 0));
        held.chunks[0][..PAGE].copy_from_slice(&stale);
        held.chunks[0][6 * PAGE - 1] ^= 1;
        assert_eq!(held.renew(), (1024, 2));
        assert_eq!(held.look(), (1024, 0));
    }

    const ZONEINFO: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 0
  pages free     3840
        boost    0
        min      33
        low      41
        high     49
        spanned  4095
        present  3998
        managed  3840
        cma      0
    cpu: 0
              count:    0
              high:     0
  start_pfn:           1
Node 0, zone  Movable
  pages free     0
        spanned  0
        present  0
        managed  0
Node 1, zone   Normal
  pages free     7
        high     100
        spanned  10
        present  9
        managed  8
  start_pfn:           1048576
";

    #[test]
    fn zones_that_span_pages() {
        let zones = zones(ZONEINFO);
        assert_eq!(zones.len(), 2);
        assert_eq!(
            zones[0],
            json!({"node": 0, "zone": "DMA", "free": 3840, "spanned": 4095, "present": 3998, "managed": 3840, "start_pfn": 1})
        );
        assert_eq!(zones[1]["node"], 1);
    }

    #[test]
    fn watermarks_are_summed_without_per_cpu_lists() {
        assert_eq!(zone_sum(ZONEINFO, "high"), 149);
    }

    #[test]
    fn meminfo_lines() {
        let text = "MemTotal:        1000 kB\nMemFree:  12 kB\n";
        assert_eq!(meminfo_kib(text, "MemFree"), Some(12));
        assert_eq!(meminfo_kib(text, "MemDeferred"), None);
        let node = "Node 0 MemTotal:        996 kB\nNode 0 MemFree:          12 kB\n";
        assert_eq!(node_meminfo_kib(node, "MemFree"), Some(12));
        assert_eq!(node_meminfo_kib(node, "MemDeferred"), None);
    }

    #[test]
    fn amounts() {
        assert_eq!(amount_kib("12M"), Ok(12 << 10));
        assert!(amount_kib("50%").is_ok_and(|kib| kib > 0));
        for wrong in ["", "%", "5", "5G", "-5M", "M", "5€"] {
            assert!(amount_kib(wrong).is_err_and(|error| error.contains("expected")), "{wrong:?}");
        }
    }

    #[test]
    fn a_page_that_was_given_out_twice_is_found() {
        let mut bytes = chunk(5);
        assert!((5..).zip(bytes.chunks_exact(PAGE)).all(|(page, bytes)| value_of(bytes) == expected(page)));
        bytes.copy_within(0..PAGE, PAGE);
        assert_ne!(value_of(&bytes[PAGE..2 * PAGE]), expected(6));
    }
}
