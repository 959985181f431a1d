// SPDX-License-Identifier: Apache-2.0
//! Which memory of a guest anybody has ever touched: what is not there reads as zero, and need not be looked at.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use vm_memory::{Address, GuestMemoryRegion};

use super::range::GpaRange;
use super::region::{Region, Source};
use crate::bits::index;
use crate::layout::PAGE_SIZE;

/// Where the kernel says which pages of this process there are.
const PAGEMAP: &str = "/proc/self/pagemap";
/// Bytes for each page there.
const ENTRY: usize = 8;
/// Of an entry (Documentation/admin-guide/mm/pagemap.rst): bit 63, present; bit 62, swapped out.
const THERE: u64 = 3 << 62;
/// Pages that are asked for at once: 512 MiB.
const CHUNK: u64 = 1 << 17;

/// What says so.
#[derive(Debug)]
pub struct Pagemap(File);

impl Pagemap {
    /// Opens the kernel's file.
    pub fn open() -> io::Result<Self> {
        File::open(PAGEMAP).map(Self)
    }

    /// Calls `visit` with ranges (GPA, whole pages, in order, apart from each other) that have all of `region` that is not zero.
    pub fn visit<E: From<io::Error>>(
        &self,
        region: &Region,
        mut visit: impl FnMut(GpaRange) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = region.start_addr().raw_value();
        let (first, end) = (region.as_ptr() as u64 / PAGE_SIZE, region.len() / PAGE_SIZE);
        let mut bytes = vec![0; index(CHUNK.min(end)) * ENTRY];
        let mut held = Held::new(region.source(), region.len());
        let mut run: Option<(u64, u64)> = None;
        let range = |(from, to)| GpaRange::new(start + from * PAGE_SIZE, start + to * PAGE_SIZE);
        let mut page = 0;
        while page < end {
            let count = CHUNK.min(end - page);
            let chunk = bytes.get_mut(..index(count) * ENTRY).unwrap_or_default();
            self.0.read_exact_at(chunk, (first + page) * ENTRY as u64)?;
            let (entries, _) = chunk.as_chunks::<ENTRY>();
            for (page, entry) in (page..).zip(entries) {
                if u64::from_le_bytes(*entry) & THERE == 0 && !held.has(page)? {
                    continue;
                }
                match &mut run {
                    Some((_, to)) if *to == page => *to += 1,
                    other => {
                        if let Some(ended) = other.replace((page, page + 1)) {
                            visit(range(ended))?;
                        }
                    }
                }
            }
            page += count;
        }
        run.map_or(Ok(()), |last| visit(range(last)))
    }
}

/// The pages that the file has in which a region comes from: asked for in order.
struct Held<'a> {
    source: Option<&'a Source>,
    length: u64,
    /// Pages of the region, the last that was found.
    from: u64,
    to: u64,
}

impl<'a> Held<'a> {
    const fn new(source: Option<&'a Source>, length: u64) -> Self {
        Self { source, length, from: 0, to: 0 }
    }

    fn has(&mut self, page: u64) -> io::Result<bool> {
        if page >= self.to {
            self.find(page)?;
        }
        Ok((self.from..self.to).contains(&page))
    }

    /// The next data at `page` or behind it.
    fn find(&mut self, page: u64) -> io::Result<()> {
        let none = u64::MAX;
        let Some(Source { file, offset }) = self.source else {
            (self.from, self.to) = (none, none);
            return Ok(());
        };
        let at = |page: u64| offset + page * PAGE_SIZE;
        let from = match seek(file, SeekFrom::Data(at(page))) {
            Ok(from) if from < offset + self.length => from,
            Ok(_) | Err(Errno::NXIO) => {
                (self.from, self.to) = (none, none);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let to = seek(file, SeekFrom::Hole(from))?.min(offset + self.length);
        self.from = (from - offset) / PAGE_SIZE;
        self.to = (to - offset).div_ceil(PAGE_SIZE).max(self.from + 1);
        Ok(())
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

    fn touched(memory: &GuestMemory) -> Vec<(u64, u64)> {
        let (pagemap, mut all) = (Pagemap::open().unwrap(), Vec::new());
        for region in memory.iter() {
            let visit = |range: GpaRange| {
                all.push((range.start() / PAGE_SIZE, range.end() / PAGE_SIZE));
                Ok::<_, io::Error>(())
            };
            pagemap.visit(region, visit).unwrap();
        }
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
        let memory = guest::map_file(&slots(), &Arc::new(file)).unwrap();
        let high = 1 << 20;
        let at = |block: u64| (block * pages, (block + 1) * pages);
        assert_eq!(touched(&memory), [at(0), at(3), (high + 5 * pages, high + 6 * pages)]);
        memory.write_obj(7u8, GuestAddress(2 * block)).unwrap();
        assert_eq!(memory.read_obj::<u8>(GuestAddress(3 * block)).unwrap(), 1);
        let between = (2 * pages, 2 * pages + 1);
        assert_eq!(touched(&memory), [at(0), between, at(3), (high + 5 * pages, high + 6 * pages)]);
    }
}
