// SPDX-License-Identifier: Apache-2.0
//! Memory that goes although a page of it is known to be faulty.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::devices::told;
use crate::memory::{self, PAGE, kib};
use crate::outcome::Outcome;
use crate::report;

/// Takes a page by its address out of use, once what is in it is elsewhere (Documentation/ABI/testing/sysfs-memory-page-offline).
const SOFT_OFFLINE: &str = "/sys/devices/system/memory/soft_offline_page";
/// A word of 8 bytes for each page of this program (Documentation/admin-guide/mm/pagemap.rst).
const PAGEMAP: &str = "/proc/self/pagemap";
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// So many pages are taken, of which the highest goes: memory that the hypervisor has added is higher than any other.
const PAGES: usize = 16384;
/// The line of /proc/meminfo with the faulty pages that the kernel knows of,
const FAULTY: &str = "HardwareCorrupted";
/// and what one page is there.
const PAGE_KIB: u64 = PAGE as u64 >> 10;

/// Takes a page of memory that has been added out of use, and says `poisoned`; waits for `stop` in the last block of `device`, written
/// from outside once that memory has gone. The kernel knows of no faulty page then.
pub(crate) fn poisoned(device: &str) -> Outcome {
    let before = kib(FAULTY)?;
    let frame = take_out()?;
    let with = kib(FAULTY)?;
    report::print(&json!({ "poisoned": true }));
    told(device, b"stop")?;
    let after = kib(FAULTY)?;
    let report = json!({
        "before_kib": before, "with_kib": with, "after_kib": after, "frame": frame, "total_kib": kib("MemTotal")?,
    });
    Ok((with == before + PAGE_KIB && after == before, report))
}

/// The number of the page, which this program had until then; what was in it is still there.
fn take_out() -> Result<u64, String> {
    let mut bytes = vec![0; PAGES * PAGE];
    (0..).zip(bytes.chunks_exact_mut(PAGE)).for_each(|(page, bytes)| memory::give_value(bytes, page));
    let frames = frames(&bytes).map_err(|error| format!("{PAGEMAP}: {error}"))?;
    let highest = frames.into_iter().max().filter(|frame| *frame != 0).ok_or("no page has a number")?;
    fs::write(SOFT_OFFLINE, format!("{:#x}", highest * PAGE as u64))
        .map_err(|error| format!("{SOFT_OFFLINE}: {error}"))?;
    let wrong = (0..).zip(bytes.chunks_exact(PAGE)).filter(|(page, bytes)| !memory::has_value(bytes, *page)).count();
    if wrong == 0 { Ok(highest) } else { Err(format!("{wrong} of {PAGES} pages are not as they were")) }
}

/// The numbers of the whole pages of `bytes`; 0 for what is not there.
fn frames(bytes: &[u8]) -> io::Result<Vec<u64>> {
    let first = bytes.as_ptr().addr().div_ceil(PAGE);
    let pages = (bytes.as_ptr().addr() + bytes.len()) / PAGE - first;
    let mut words = vec![0; pages * 8];
    File::open(PAGEMAP)?.read_exact_at(&mut words, first as u64 * 8)?;
    let words = words.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    Ok(words.map(|word| if word & PRESENT == 0 { 0 } else { word & FRAME }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_whole_page_has_a_word() {
        let bytes = vec![1; 16 * PAGE + PAGE / 2];
        let frames = frames(&bytes).unwrap();
        assert!((15..=16).contains(&frames.len()), "{}", frames.len());
    }
}
