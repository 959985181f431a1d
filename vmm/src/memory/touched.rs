// SPDX-License-Identifier: Apache-2.0
//! Which memory of a guest anybody has ever touched: what is not there reads as zero, and need not be looked at.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use vm_memory::{Address, GuestMemoryRegion};

use super::range::GpaRange;
use super::region::{Region, Source};
use super::scan;
use crate::bits::index;
use crate::layout::PAGE_SIZE;

/// Where the kernel says which pages of this process there are.
const PAGEMAP: &str = "/proc/self/pagemap";
/// Bytes for each page there.
const ENTRY: usize = 8;
/// Of an entry (Documentation/admin-guide/mm/pagemap.rst): bit 63, present; bit 62, swapped out.
const THERE: u64 = 3 << 62;
/// Pages that are read at once: 512 MiB.
const CHUNK: u64 = 1 << 17;

/// What says so.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    /// Whether the kernel can be asked for what is there. One before Linux 6.7 has to be read page by page, which takes as long as
    /// memory is large.
    scans: bool,
}

impl Pagemap {
    /// Opens the kernel's file.
    pub fn open() -> io::Result<Self> {
        let file = File::open(PAGEMAP)?;
        let scans = scan::is_known(&file);
        Ok(Self { file, scans })
    }

    /// Calls `visit` with ranges (GPA, whole pages, in order, apart from each other) that have all of `region` that is not zero.
    pub fn visit<E: From<io::Error>>(
        &self,
        region: &Region,
        mut visit: impl FnMut(GpaRange) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = region.start_addr().raw_value();
        let range = |run: Range<u64>| GpaRange::new(start + run.start * PAGE_SIZE, start + run.end * PAGE_SIZE);
        let mut joined = Joined { run: 0..0, visit: |run| visit(range(run)) };
        let mut data = Data::new(region).peekable();
        self.present(region, |run| {
            // Both are in order: what the file has before this run comes first.
            while let Some(before) = data.next_if(|next| next.as_ref().map_or(true, |next| next.start < run.start)) {
                joined.add(before?)?;
            }
            joined.add(run)
        })?;
        data.try_for_each(|run| joined.add(run?))?;
        joined.end()
    }

    /// Calls `visit` with runs of pages of `region`, in order, that have all of it that was touched.
    fn present<E: From<io::Error>>(
        &self,
        region: &Region,
        mut visit: impl FnMut(Range<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = region.as_ptr() as u64;
        let (first, end) = (start / PAGE_SIZE, pages(region));
        if self.scans {
            let run = |found: Range<u64>| found.start / PAGE_SIZE - first..found.end / PAGE_SIZE - first;
            return scan::visit(&self.file, start..start + end * PAGE_SIZE, |found| visit(run(found)));
        }
        let mut bytes = vec![0; index(CHUNK.min(end)) * ENTRY];
        for page in (0..end).step_by(index(CHUNK)) {
            let count = index(CHUNK.min(end - page));
            let chunk = bytes.get_mut(..count * ENTRY).unwrap_or_default();
            self.file.read_exact_at(chunk, (first + page) * ENTRY as u64)?;
            let (entries, _) = chunk.as_chunks::<ENTRY>();
            let there = (page..).zip(entries).filter(|(_, entry)| u64::from_le_bytes(**entry) & THERE != 0);
            for (page, _) in there {
                visit(page..page + 1)?;
            }
        }
        Ok(())
    }
}

/// Pages of a region that are there or could be.
fn pages(region: &Region) -> u64 {
    region.there() / PAGE_SIZE
}

/// Runs of pages that come in the order of their starts, put together where they overlap or meet.
struct Joined<F> {
    run: Range<u64>,
    visit: F,
}

impl<E, F: FnMut(Range<u64>) -> Result<(), E>> Joined<F> {
    fn add(&mut self, run: Range<u64>) -> Result<(), E> {
        if run.start <= self.run.end && !self.run.is_empty() {
            self.run.end = self.run.end.max(run.end);
            return Ok(());
        }
        let ended = std::mem::replace(&mut self.run, run);
        if ended.is_empty() { Ok(()) } else { (self.visit)(ended) }
    }

    fn end(mut self) -> Result<(), E> {
        if self.run.is_empty() { Ok(()) } else { (self.visit)(self.run) }
    }
}

/// Runs of pages, in order, that the file has in which a region comes from.
struct Data<'a> {
    source: Option<&'a Source>,
    /// The page of the region that is looked at next,
    page: u64,
    /// and the last one's end.
    end: u64,
}

impl<'a> Data<'a> {
    fn new(region: &'a Region) -> Self {
        Self { source: region.source(), page: 0, end: pages(region) }
    }

    /// The next data at `page` or behind it.
    fn look(&self, Source { file, offset }: &Source) -> io::Result<Option<Range<u64>>> {
        let limit = offset + self.end * PAGE_SIZE;
        let from = match seek(file, SeekFrom::Data(offset + self.page * PAGE_SIZE)) {
            Ok(from) if from < limit => from,
            Ok(_) | Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let to = seek(file, SeekFrom::Hole(from))?.min(limit);
        Ok(Some((from - offset) / PAGE_SIZE..(to - offset).div_ceil(PAGE_SIZE)))
    }
}

impl Iterator for Data<'_> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        let source = self.source.filter(|_| self.page < self.end)?;
        let found = self.look(source).transpose();
        self.page = match &found {
            Some(Ok(run)) => run.end,
            _ => self.end,
        };
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

    use super::*;
    use crate::memory::guest;
    use crate::memory::{Backing, GuestMemory, Slot};

    const MIB: u64 = 1 << 20;

    /// By both ways, if this kernel has both.
    fn touched(memory: &GuestMemory) -> Vec<(u64, u64)> {
        let pagemap = Pagemap::open().unwrap();
        if !pagemap.scans {
            eprintln!(
                "SKIPPED: this kernel has no PAGEMAP_SCAN, which is of Linux 6.7: pages are only looked at by reading"
            );
        }
        let by = |pagemap: &Pagemap| {
            let mut all = Vec::new();
            for region in memory.iter() {
                let visit = |range: GpaRange| {
                    all.push((range.start() / PAGE_SIZE, range.end() / PAGE_SIZE));
                    Ok::<_, io::Error>(())
                };
                pagemap.visit(region, visit).unwrap();
            }
            all
        };
        let all = by(&pagemap);
        assert_eq!(by(&Pagemap { scans: false, ..pagemap }), all);
        all
    }

    fn slots() -> [Slot; 2] {
        [(0, 64 * MIB), (1 << 32, 1 << 30)].map(|(start, length)| {
            let range = GpaRange::of(start, length);
            Slot::new(range, Backing::default())
        })
    }

    #[test]
    fn what_was_touched_and_nothing_else() {
        let memory = guest::map(&slots()).unwrap();
        assert_eq!(touched(&memory), []);
        for page in [0, 1, 5, (64 << 8) - 1, 1 << 20, (1 << 20) + 200_000] {
            memory.write_obj(7u8, GuestAddress(page * PAGE_SIZE + 9)).unwrap();
        }
        let high = 1 << 20;
        assert_eq!(
            touched(&memory),
            [(0, 2), (5, 6), (16383, 16384), (high, high + 1), (high + 200_000, high + 200_001)]
        );
    }

    /// More than the kernel tells at once, and in more than one of its page tables.
    #[test]
    fn every_second_page() {
        let memory = guest::map(&slots()).unwrap();
        let pages: Vec<u64> = (0..3000).map(|page| (1 << 20) + 2 * page).collect();
        for page in &pages {
            memory.write_obj(7u8, GuestAddress(page * PAGE_SIZE)).unwrap();
        }
        assert_eq!(touched(&memory), pages.iter().map(|page| (*page, page + 1)).collect::<Vec<_>>());
    }

    #[test]
    fn runs_are_put_together() {
        let joined = |runs: &[Range<u64>]| {
            let mut all = Vec::new();
            let visit = |run| {
                all.push(run);
                Ok::<_, io::Error>(())
            };
            let mut joined = Joined { run: 0..0, visit };
            runs.iter().try_for_each(|run| joined.add(run.clone())).unwrap();
            joined.end().unwrap();
            all
        };
        assert_eq!(joined(&[]), []);
        assert_eq!(joined(&[0..1, 1..2, 4..9, 5..6, 7..12, 13..14]), [0..2, 4..12, 13..14]);
    }

    #[test]
    fn what_a_file_has_is_there_too() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * MIB + (1 << 30)).unwrap();
        // On file systems with larger blocks data begins and ends at those.
        let block = 64 << 10;
        let pages = block / PAGE_SIZE;
        for offset in [0, 3 * block, 64 * MIB + 5 * block] {
            file.write_all_at(&vec![1; index(block)], offset).unwrap();
        }
        let memory = guest::map_file(&slots(), None, &Arc::new(file)).unwrap();
        let high = 1 << 20;
        let at = |block: u64| (block * pages, (block + 1) * pages);
        assert_eq!(touched(&memory), [at(0), at(3), (high + 5 * pages, high + 6 * pages)]);
        memory.write_obj(7u8, GuestAddress(2 * block)).unwrap();
        assert_eq!(memory.read_obj::<u8>(GuestAddress(3 * block)).unwrap(), 1);
        let between = (2 * pages, 2 * pages + 1);
        assert_eq!(touched(&memory), [at(0), between, at(3), (high + 5 * pages, high + 6 * pages)]);
    }
}
