// SPDX-License-Identifier: Apache-2.0
//! Memory that comes and goes while it is in use.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use serde_json::json;

use crate::devices::size;
use crate::files;
use crate::mark::mark;
use crate::memory::{self, PAGE};
use crate::outcome::Outcome;
use crate::report;

/// The mark of `rises`, of user space's range: `MemTotal` has just risen.
const RISEN: u8 = 0x70;
/// How often `MemTotal` is looked at: each look takes a processor from what it waits for.
const LOOK: Duration = Duration::from_millis(1);
/// How long memory may take to come, or to begin to go.
const LIMIT: Duration = Duration::from_secs(180);
/// Pages that are taken, and given back, at a time.
const PIECE: u32 = 64;
const PIECE_BYTES: usize = PIECE as usize * PAGE;
/// `MemTotal` that has not changed for so long is what was asked for.
const STILL: Duration = Duration::from_secs(3);
/// Where files without a disk are, and those on one. A disk's own page cache is nothing that can be moved.
const TMPFS: &str = "/memory";
const DISK: &str = "/disk";
/// Of the disk, as a divisor, what its file system keeps for itself.
const OVERHEAD: u64 = 8;

/// Sets the mark and says a line each time that `MemTotal` rises, so many times.
pub(crate) fn rises(times: &str) -> Outcome {
    let times: u64 = times.parse().map_err(|_| format!("rises={times}: expected a number"))?;
    let (mut seen, mut before) = (0, memory::kib("MemTotal")?);
    report::print(&json!({ "rises": seen }));
    while seen < times {
        let now = memory::kib("MemTotal")?;
        if now > before {
            mark(RISEN).map_err(|error| format!("/dev/port: {error}"))?;
            seen += 1;
            report::print(&json!({ "rises": seen }));
        }
        before = now;
        sleep(LOOK);
    }
    Ok((true, json!({ "seen": seen })))
}

/// What reads at `gpa`, which is no memory: zeros, at the latest when the host has taken it back.
pub(crate) fn zeros(gpa: &str) -> Outcome {
    const MEMORY: &str = "/dev/mem";
    let at = gpa.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let at = at.ok_or_else(|| format!("zeros={gpa}: expected an address, 0x…"))?;
    let memory = File::open(MEMORY).map_err(|error| format!("{MEMORY}: {error}"))?;
    let since = Instant::now();
    loop {
        let mut bytes = [0xff; 64];
        let late = since.elapsed() > LIMIT;
        match memory.read_exact_at(&mut bytes, at) {
            // The kernel lets nobody read what it owns, which it does a moment longer than MemTotal has it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !late => {}
            Err(error) => return Err(format!("{MEMORY} at {gpa}: {error}")),
            Ok(()) if bytes == [0; 64] || late => return Ok((bytes == [0; 64], json!({ "first": bytes[0] }))),
            Ok(()) => {}
        }
        sleep(LOOK);
    }
}

/// Takes all that the kernel gives without looking for more, and says so. Then gives some back and takes it again, until
/// `MemTotal` rises; then takes `amount` more, a page at a time.
pub(crate) fn short(amount: &str) -> Outcome {
    let more = memory::amount_kib(amount)? / 4;
    let (before, kills) = (memory::kib("MemTotal")?, killed()?);
    let mut taken = Pages::default();
    while memory::kib("MemFree")? > memory::high_kib()? {
        taken.take();
    }
    let full = taken.pages();
    report::print(&json!({ "short": true, "pages": full }));
    taken.longest = Duration::ZERO;
    let since = Instant::now();
    while memory::kib("MemTotal")? == before {
        if since.elapsed() > LIMIT {
            return Err(format!("MemTotal is {before} KiB, and stays so"));
        }
        taken.give_back();
        taken.take();
    }
    let while_short = std::mem::take(&mut taken.longest);
    while taken.pages() < full + more {
        taken.take();
    }
    let (pages, wrong) = (taken.pages(), taken.wrong());
    let killed = killed()? - kills;
    let report = json!({
        "pages": pages, "full": full, "wrong": wrong, "killed": killed,
        "longest_short_ns": while_short.as_nanos(), "longest_after_ns": taken.longest.as_nanos(),
    });
    Ok((wrong == 0 && killed == 0, report))
}

/// Memory, each page with a value of its own, and the longest that one took to come.
#[derive(Default)]
struct Pages {
    pieces: Vec<Vec<u8>>,
    longest: Duration,
}

impl Pages {
    fn pages(&self) -> u64 {
        self.pieces.len() as u64 * u64::from(PIECE)
    }

    fn take(&mut self) {
        // Zero pages that are not there yet: the first word of each is what brings it.
        let mut piece = vec![0; PIECE_BYTES];
        for (page, bytes) in (self.pages()..).zip(piece.chunks_exact_mut(PAGE)) {
            let since = Instant::now();
            memory::give_value(bytes, page);
            self.longest = self.longest.max(since.elapsed());
        }
        self.pieces.push(piece);
    }

    fn give_back(&mut self) {
        self.pieces.pop();
    }

    fn wrong(&self) -> u64 {
        let pages = self.pieces.iter().flat_map(|piece| piece.chunks_exact(PAGE));
        wrong(pages)
    }
}

/// Pages that are not as they were numbered.
fn wrong<'a>(pages: impl Iterator<Item = &'a [u8]>) -> u64 {
    (0..).zip(pages).map(|(page, bytes)| u64::from(!memory::has_value(bytes, page))).sum()
}

/// Mounts `source` at `target`, which is made.
pub(crate) fn mount_at(source: &str, target: &str, kind: &str) -> Result<(), String> {
    let mounted = fs::create_dir(target).and_then(|()| Ok(mount(source, target, kind, MountFlags::empty(), None)?));
    mounted.map_err(|error| format!("{source} at {target}: {error}"))
}

/// Fills a quarter of all memory with pages of its own, an eighth with a file in memory, and the rest with one on the ext4 of `device`,
/// which is larger, and says so.
/// Reads all of it again and again, until `MemTotal` has fallen and is still; a last time from the device itself.
pub(crate) fn laden(device: &str) -> Outcome {
    let before = memory::kib("MemTotal")?;
    let mut own = Pages::default();
    while own.pages() < before / 4 / 4 {
        own.take();
    }
    for (source, target, kind) in [("tmpfs", TMPFS, "tmpfs"), (device, DISK, "ext4")] {
        mount_at(source, target, kind)?;
    }
    let file = Filled::write(&format!("{TMPFS}/file"), before / 8 / 4)?;
    let room = size(device)? / PAGE as u64;
    let disk = Filled::write(&format!("{DISK}/file"), room - room / OVERHEAD)?;
    let mut wrong = disk.wrong()?;
    report::print(&json!({ "laden": true, "free_kib": memory::kib("MemFree")?, "total_kib": before }));

    let (since, mut looks, mut last, mut changed) = (Instant::now(), 0u64, before, Instant::now());
    while last == before || changed.elapsed() < STILL {
        if since.elapsed() > LIMIT {
            return Err(format!("MemTotal was {before} KiB and is {last}"));
        }
        wrong += own.wrong() + file.wrong()? + disk.wrong()?;
        looks += 1;
        let now = memory::kib("MemTotal")?;
        if now != last {
            (last, changed) = (now, Instant::now());
        }
    }
    memory::drop_and_compact()?;
    wrong += own.wrong() + file.wrong()? + disk.wrong()?;
    let pages = own.pages() + file.pages + disk.pages;
    let report = json!({ "pages": pages, "wrong": wrong, "looks": looks, "before_kib": before, "after_kib": last });
    Ok((wrong == 0 && last < before, report))
}

/// A file or a disk, each page of which has a value of its own, by way of the page cache.
pub(crate) struct Filled {
    name: String,
    file: File,
    pages: u64,
}

impl Filled {
    /// Has as many pages in it as told.
    pub(crate) fn write(name: &str, pages: u64) -> Result<Self, String> {
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(name);
        let filled = Self { name: name.to_owned(), file: open().map_err(|error| format!("{name}: {error}"))?, pages };
        let mut bytes = vec![0; PIECE_BYTES];
        filled.each(&mut bytes, |bytes, first, offset| {
            (first..).zip(bytes.chunks_exact_mut(PAGE)).for_each(|(page, bytes)| memory::give_value(bytes, page));
            filled.file.write_all_at(bytes, offset)
        })?;
        filled.file.sync_all().map_err(|error| format!("{name}: {error}"))?;
        Ok(filled)
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Pages that are not as they were numbered.
    pub(crate) fn wrong(&self) -> Result<u64, String> {
        let (mut wrong, mut bytes) = (0, vec![0; PIECE_BYTES]);
        self.each(&mut bytes, |bytes, first, offset| {
            self.file.read_exact_at(bytes, offset)?;
            let pages = (first..).zip(bytes.chunks_exact(PAGE));
            wrong += pages.map(|(page, bytes)| u64::from(!memory::has_value(bytes, page))).sum::<u64>();
            Ok(())
        })?;
        Ok(wrong)
    }

    /// Piece after piece: its pages' bytes, the number of the first, and where it is.
    fn each(
        &self,
        bytes: &mut [u8],
        mut piece: impl FnMut(&mut [u8], u64, u64) -> io::Result<()>,
    ) -> Result<(), String> {
        for first in (0..self.pages).step_by(PIECE_BYTES / PAGE) {
            let left = usize::try_from(self.pages - first).unwrap_or(usize::MAX);
            piece(&mut bytes[..left.min(PIECE_BYTES / PAGE) * PAGE], first, first * PAGE as u64)
                .map_err(|error| format!("{}: {error}", self.name))?;
        }
        Ok(())
    }
}

/// What was killed for its memory since boot.
fn killed() -> Result<u64, String> {
    Ok(memory::vmstat_sum(&files::text("/proc/vmstat")?, "oom_kill"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_values_and_damage_is_found() {
        let mut taken = Pages::default();
        taken.take();
        taken.take();
        assert_eq!((taken.pages(), taken.wrong()), (2 * u64::from(PIECE), 0));
        taken.pieces[1].copy_within(0..PAGE, PAGE);
        assert_eq!(taken.wrong(), 1);
        taken.give_back();
        assert_eq!((taken.pages(), taken.wrong()), (u64::from(PIECE), 0));
    }

    #[test]
    fn files_have_values_and_damage_is_found() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let filled = Filled::write(path.to_str().unwrap(), u64::from(PIECE) + 3).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), u64::from(PIECE + 3) * PAGE as u64);
        assert_eq!(filled.wrong(), Ok(0));
        filled.file.write_all_at(&[0; PAGE], u64::from(PIECE) * PAGE as u64).unwrap();
        assert_eq!(filled.wrong(), Ok(1));
    }
}
