// SPDX-License-Identifier: Apache-2.0
//! Guest memory that is backed before the guest runs, by many threads at once.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::backing::total;
use super::choice::Prefault;
use super::guest;
use super::pages::{HUGE_PAGE, HostPages};
use super::range::GpaRange;
use super::region::GuestMemory;
use super::size::Size;

/// Most threads: with more, they wait for the host's page allocator, not for memory.
const MAX_THREADS: usize = 16;
/// Least bytes of a piece of work.
const MIN_PIECE: u64 = 32 << 20;
/// Pieces for each thread, so that one that starts late does not hold up the rest.
const PIECES_PER_THREAD: u64 = 16;

/// Why guest memory is not there beforehand.
#[derive(Debug, thiserror::Error)]
pub enum PrefaultError {
    /// The host has no room for another thread.
    #[error("{}: a thread cannot be started", .mode.asked())]
    Thread {
        /// What was to be backed.
        mode: Prefault,
        /// Why.
        source: io::Error,
    },
    /// The host cannot give a page.
    #[error(
        "{asked}: guest memory {range} cannot be backed, after {backed} of {all}: {why}",
        asked = .mode.asked(),
        why = reason(.source)
    )]
    Backing {
        /// What was to be backed.
        mode: Prefault,
        /// The piece that failed.
        range: GpaRange,
        /// What was backed until then.
        backed: Size,
        /// What was to be backed.
        all: Size,
        /// Why.
        source: io::Error,
    },
    /// A thread ended before its work did.
    #[error("{}: a thread ended without a message", .0.asked())]
    Lost(Prefault),
}

/// What an error of `MADV_POPULATE_WRITE` or `MADV_POPULATE_READ` (madvise(2)) means, and what would help.
fn reason(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => "the host is out of memory: use less, or back none beforehand",
        Some(libc::EFAULT) => "the host's page pool or a limit on it is exhausted: use less, or raise it",
        Some(libc::EHWPOISON) => "the host's memory is damaged there: see its kernel log",
        Some(libc::EINVAL) => "needs Linux 5.14 or later on the host: back none beforehand",
        _ => "the host refuses",
    }
}

/// Threads that back guest memory; none of them outlives this.
#[derive(Debug)]
pub struct Prefaulting {
    job: Arc<Job>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share: pieces of memory, taken one after another.
#[derive(Debug)]
struct Job {
    mode: Prefault,
    memory: GuestMemory,
    pieces: Vec<GpaRange>,
    next: AtomicUsize,
    running: AtomicUsize,
    failed: Mutex<Option<PrefaultError>>,
}

/// Begins to back `ranges` of `memory`, which is made of `pages`, by a thread for each CPU that this process may use, up to 16.
///
/// `done` is called by the thread that finishes last, if there is anything to do and all of it was backed.
pub fn start(
    memory: &GuestMemory,
    ranges: &[GpaRange],
    pages: HostPages,
    mode: Prefault,
    done: impl Fn() + Clone + Send + 'static,
) -> Result<Prefaulting, PrefaultError> {
    let cpus = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let pieces = pieces(ranges, pages.bytes(), cpus);
    let count = cpus.min(pieces.len());
    let job = Arc::new(Job {
        mode,
        memory: memory.clone(),
        pieces,
        next: AtomicUsize::new(0),
        running: AtomicUsize::new(count),
        failed: Mutex::default(),
    });
    let mut all = Prefaulting { job, threads: Vec::with_capacity(count) };
    for index in 0..count {
        let (worker, done) = (Arc::clone(&all.job), done.clone());
        let thread = thread::Builder::new().name(format!("prefault{index}")).spawn(move || worker.work(&done));
        all.threads.push(thread.map_err(|source| PrefaultError::Thread { mode, source })?);
    }
    Ok(all)
}

impl Prefaulting {
    /// Waits until all is backed.
    pub fn finish(mut self) -> Result<(), PrefaultError> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| PrefaultError::Lost(self.job.mode))?;
        }
        let failed = self.job.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for Prefaulting {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.job.stop();
        }
        for thread in self.threads.drain(..) {
            // One that died has said so itself.
            let _ = thread.join();
        }
    }
}

impl Job {
    fn work(&self, done: &impl Fn()) {
        while let Some(&piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(source) = guest::populate(&self.memory, piece) {
                self.fail(piece, source);
            }
        }
        let last = self.running.fetch_sub(1, Ordering::AcqRel) == 1;
        if last && self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            done();
        }
    }

    /// Keeps the first error; nobody takes another piece.
    fn fail(&self, range: GpaRange, source: io::Error) {
        let taken = self.next.load(Ordering::Relaxed).min(self.pieces.len());
        self.stop();
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| {
            let others = self.pieces.iter().take(taken).filter(|piece| **piece != range);
            let backed = Size(others.map(|piece| piece.length()).sum());
            PrefaultError::Backing { mode: self.mode, range, backed, all: Size(total(&self.pieces)), source }
        });
    }

    fn stop(&self) {
        self.next.store(self.pieces.len(), Ordering::Relaxed);
    }
}

/// Cuts `ranges` into pieces for `threads`, at multiples of the backing page: 2 MiB at least, which may be transparent huge pages.
fn pieces(ranges: &[GpaRange], page: u64, threads: usize) -> Vec<GpaRange> {
    let unit = page.max(HUGE_PAGE);
    let share = total(ranges) / (PIECES_PER_THREAD * threads.max(1) as u64);
    let length = share.max(MIN_PIECE).next_multiple_of(unit);
    let mut pieces = Vec::new();
    for range in ranges {
        let mut start = range.start();
        while start < range.end() {
            let end = range.end().min((start + length) / unit * unit);
            pieces.push(GpaRange::new(start, end));
            start = end;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;
    use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

    use super::super::guest::present;
    use super::super::{Backing, Slot};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn mapped(ranges: &[GpaRange], shared: bool) -> GuestMemory {
        let backing = Backing { shared, ..Backing::default() };
        guest::map(&ranges.iter().map(|range| Slot::new(*range, backing)).collect::<Vec<_>>()).unwrap()
    }

    proptest! {
        #[test]
        fn pieces_cover_everything_once_in_whole_pages(
            sizes in proptest::collection::vec(1u64..1 << 20, 0..8),
            huge in 0..3usize,
            threads in 1..=16usize,
        ) {
            let page = [HostPages::Base, HostPages::Huge2M, HostPages::Huge1G][huge].bytes();
            let mut at = 0;
            let ranges: Vec<_> = sizes.iter().map(|pages| {
                let range = GpaRange::of(at, pages * page);
                at = (range.end() + page).next_multiple_of(HUGE_PAGE);
                range
            }).collect();
            let pieces = pieces(&ranges, page, threads);
            let mut merged: Vec<GpaRange> = Vec::new();
            for piece in &pieces {
                prop_assert!(!piece.is_empty());
                prop_assert!(piece.start().is_multiple_of(page));
                match merged.last_mut() {
                    Some(last) if last.end() == piece.start() => {
                        prop_assert!(piece.start().is_multiple_of(HUGE_PAGE), "a huge page is cut");
                        *last = GpaRange::new(last.start(), piece.end());
                    }
                    _ => merged.push(*piece),
                }
            }
            prop_assert_eq!(merged, ranges);
            prop_assert!(pieces.len() as u64 <= 8 + PIECES_PER_THREAD * threads as u64 * 2);
        }
    }

    #[test]
    fn every_page_is_there_afterwards_and_keeps_what_was_in_it() {
        let slots = [GpaRange::of(0, 70 * MIB), GpaRange::of(1 << 32, 40 * MIB)];
        for shared in [false, true] {
            let memory = mapped(&slots, shared);
            memory.write_obj(7u64, GuestAddress(3 * MIB)).unwrap();
            let (sender, done) = std::sync::mpsc::channel();
            let job = start(&memory, &slots[..1], HostPages::Base, Prefault::All, move || sender.send(()).unwrap());
            job.unwrap().finish().unwrap();
            assert_eq!(present(&memory, slots[0]), 70 * MIB / 4096);
            assert_eq!(present(&memory, slots[1]), 0, "not asked for");
            assert_eq!(done.iter().count(), 1);
            assert_eq!(memory.read_obj::<u64>(GuestAddress(3 * MIB)).unwrap(), 7);
        }
    }

    /// Bytes that this process has for itself of the mapping that begins at `start`: /proc/self/smaps says so.
    fn own_kib(start: *const u8, field: &str) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", start.addr());
        let lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let value = lines.into_iter().find_map(|line| line.strip_prefix(field)).unwrap();
        value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// As clones of one snapshot have it.
    #[test]
    fn what_comes_from_a_file_is_there_and_shared() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![9; 40 << 20], 0).unwrap();
        file.set_len(80 * MIB).unwrap();
        let (slots, file) = ([GpaRange::of(0, 80 * MIB)], Arc::new(file));
        let clones = [(); 2].map(|()| {
            let slots = slots.map(|range| Slot::new(range, Backing::default()));
            let memory = guest::map_file(&slots, None, &file).unwrap();
            let data = [GpaRange::of(0, 40 * MIB)];
            start(&memory, &data, HostPages::Base, Prefault::All, || ()).unwrap().finish().unwrap();
            memory
        });
        for memory in &clones {
            assert_eq!(present(memory, slots[0]), 40 * MIB / 4096);
            let start = memory.iter().next().unwrap().as_ptr();
            assert_eq!((own_kib(start, "Rss:"), own_kib(start, "Anonymous:")), (40 << 10, 0));
            memory.write_obj(7u8, GuestAddress(3 * MIB)).unwrap();
            assert_eq!(own_kib(start, "Anonymous:"), 4, "what is written is its own");
        }
        assert_eq!(clones[1].read_obj::<u8>(GuestAddress(4 * MIB)).unwrap(), 9);
    }

    #[test]
    fn nothing_to_do_is_done_at_once() {
        let memory = mapped(&[GpaRange::of(0, 64 * MIB)], false);
        let job = start(&memory, &[], HostPages::Base, Prefault::Off, || panic!("nothing was done")).unwrap();
        assert!(job.threads.is_empty());
        job.finish().unwrap();
    }

    #[test]
    fn what_cannot_be_backed_is_an_error_and_stops_the_others() {
        let slots = [GpaRange::of(0, 256 * MIB)];
        let memory = mapped(&slots, true);
        // A file that has become shorter: a touch would be a SIGBUS.
        let region = memory.iter().next().unwrap();
        region.file_offset().unwrap().file().set_len(MIB).unwrap();
        let job = start(&memory, &slots, HostPages::Base, Prefault::All, || panic!("it cannot be done")).unwrap();
        let error = job.finish().unwrap_err().to_string();
        assert!(error.starts_with("memory.prefault=on: guest memory 0x"), "{error}");
        assert!(error.contains(" of 256 MiB: the host's page pool or a limit on it is exhausted"), "{error}");
    }

    #[test]
    fn errors_say_what_would_help() {
        for (errno, part) in [
            (libc::ENOMEM, "out of memory"),
            (libc::EHWPOISON, "damaged"),
            (libc::EINVAL, "Linux 5.14"),
            (libc::EPERM, "refuses"),
        ] {
            assert!(reason(&io::Error::from_raw_os_error(errno)).contains(part), "{errno}");
        }
    }
}
