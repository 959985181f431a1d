// SPDX-License-Identifier: Apache-2.0
//! Memory that the kernel fills in the background, and memory that is taken before it has.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::kernel::DEBUGFS;
use crate::memory::{self, PAGE, meminfo_kib};
use crate::outcome::Outcome;
use crate::{files, locks};

/// How long `settle` waits unless told otherwise.
const LIMIT_S: u64 = 600;
/// How often it looks. The fill is timed by the kernel's marks, and each look takes a processor from it.
const LOOK: Duration = Duration::from_millis(100);
/// What page allocators on different processors meet at.
const ZONE_LOCK: &str = "&zone->lock";
/// How much later than the kernel's last count its mark may come.
const MARK: Duration = Duration::from_millis(10);

/// Waits until every node's deferred part of the memmap is filled. A kernel that defers nothing beyond its boot has filled
/// it before init, and says nothing of it.
pub(crate) fn settle(seconds: Option<&str>) -> Outcome {
    let seconds = match seconds {
        Some(text) => text.parse().map_err(|_| format!("settle={text}: expected seconds"))?,
        None => LIMIT_S,
    };
    let since = Instant::now();
    loop {
        let deferred = meminfo_kib(&files::text("/proc/meminfo")?, "MemDeferred").unwrap_or(0);
        let nodes = files::text(format!("{DEBUGFS}/memmap_nodes")).unwrap_or_default();
        let is_filled = deferred == 0 && nodes_are_filled(&nodes)?;
        if is_filled || since.elapsed() >= Duration::from_secs(seconds) {
            // The mark that it is over may come a moment after the count that says so.
            thread::sleep(MARK);
            let nodes: Vec<_> = nodes.lines().collect();
            return Ok((is_filled, json!({ "deferred_kib": deferred, "nodes": nodes })));
        }
        thread::sleep(LOOK);
    }
}

/// Of debugfs `memmap_nodes`: whether each node has nothing deferred, or says how long it took.
fn nodes_are_filled(nodes: &str) -> Result<bool, String> {
    let mut lines = nodes.lines();
    let Some(titles) = lines.next() else { return Ok(true) };
    let titles: Vec<_> = titles.trim_start_matches('#').split_whitespace().collect();
    let column = |name: &str| {
        titles.iter().position(|title| *title == name).ok_or_else(|| format!("memmap_nodes: no column {name}"))
    };
    let (sections, ns) = (column("sections")?, column("ns")?);
    let is_filled = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(sections) == Some(&"0") || words.get(ns).is_some_and(|ns| *ns != "0")
    };
    Ok(lines.all(is_filled))
}

/// Takes so much of all memory, with as many threads as there are CPUs, and writes one word to each page.
pub(crate) fn take(share: &str) -> Outcome {
    let wrong = || format!("take={share}: expected 1% to 99%");
    let percent = share.strip_suffix('%').and_then(|number| number.parse::<usize>().ok());
    let percent = percent.filter(|percent| (1..100).contains(percent)).ok_or_else(wrong)?;
    let total = memory::kib("MemTotal")?;
    let total = usize::try_from(total).map_err(|_| "more memory than addresses")?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let each = (total / 4 * percent / 100).div_ceil(threads);
    let locked = locks::acquisitions(ZONE_LOCK);
    let since = Instant::now();
    let mut taken: Vec<Vec<u8>> = Vec::new();
    thread::scope(|scope| -> Result<(), String> {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| written(each))).collect();
        for thread in running {
            taken.push(thread.join().map_err(|_| "take: a thread panicked")?);
        }
        Ok(())
    })?;
    let ns = since.elapsed().as_nanos();
    let pages = each * threads;
    let locked = locks::acquisitions(ZONE_LOCK).zip(locked).map(|(after, before)| after - before);
    let resident = resident_pages()?;
    drop(taken);
    let fields = json!({ "pages": pages, "threads": threads, "ns": ns, "zone_locked": locked });
    Ok((resident >= pages, fields))
}

/// So many pages, a word of each written.
fn written(pages: usize) -> Vec<u8> {
    // The kernel's zero pages until they are written to: that is the first touch.
    let mut memory = vec![0; pages * PAGE];
    for (number, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    memory
}

/// Pages of this process that are really there (proc(5), statm).
fn resident_pages() -> Result<usize, String> {
    let statm = files::text("/proc/self/statm")?;
    let second = statm.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    second.ok_or_else(|| format!("/proc/self/statm: {statm:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_filled_once_they_say_how_long_it_took() {
        let nodes =
            |lines: &str| nodes_are_filled(&format!("# node max_threads regions sections ns mode filled\n{lines}"));
        assert_eq!(nodes("0 2 1 40 123456 async 40\n1 2 0 0 0 async 0\n"), Ok(true));
        assert_eq!(nodes("0 2 1 40 123456 async 40\n1 2 1 8 0 async 7\n"), Ok(false));
        assert_eq!(nodes_are_filled(""), Ok(true));
        assert!(nodes_are_filled("# node mode\n0 async\n").is_err());
    }

    #[test]
    fn every_page_gets_its_word() {
        let memory = written(3);
        let words: Vec<_> = memory.chunks_exact(PAGE).map(|page| page[0]).collect();
        assert_eq!((words, memory.len()), (vec![1, 2, 3], 3 * PAGE));
        for wrong in ["", "90", "0%", "100%", "x%"] {
            assert!(take(wrong).is_err(), "{wrong:?}");
        }
    }
}
