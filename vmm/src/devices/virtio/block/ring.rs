// SPDX-License-Identifier: Apache-2.0
//! Many transfers at once, by `io_uring`.
//!
//! No seccomp filter sees what is put into a ring, so the ring itself is restricted before it can be used, for good: it takes
//! reads, writes and flushes of one file, the disk's, and nothing else from whoever has taken over the thread.
#![expect(unsafe_code, reason = "what a ring is given names memory by its address")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::Duration;

use io_uring::opcode::{Fsync, Readv, Writev};
use io_uring::register::Restriction;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{IoUring, cqueue};

use crate::devices::virtio::vectors::{Direction, Vectors};

/// How long a kernel that has no room for more is left alone.
pub(super) const NO_ROOM: Duration = Duration::from_millis(10);

/// A host that says so often in a row that it has no room never will have.
const WAITS_MAX: u32 = 100;

/// The disk's place among the files of its ring.
const FILE: Fixed = Fixed(0);

/// What the kernel is to do.
#[derive(Debug)]
pub(super) enum Operation {
    /// Move all these bytes from or to `offset`; then, if `flush`, as below.
    Transfer { direction: Direction, offset: u64, vectors: Vectors, flush: bool },
    /// Make safe what was written.
    Flush,
}

/// Operations that are under way, each with what it is for.
pub(super) struct Ring<T> {
    uring: IoUring,
    /// By the number that the kernel knows an operation by.
    slots: Vec<Option<Slot<T>>>,
    free: Vec<usize>,
    /// Bytes that the lists of pieces have which are under way,
    held: usize,
    /// and how many are enough: with so many no other operation is begun.
    enough: usize,
    /// The kernel has not taken all that it was told of: it had no room.
    stuck: bool,
}

/// An operation that is over.
pub(super) struct Over<T> {
    pub(super) purpose: T,
    /// The last thing that the kernel did for it was a flush.
    pub(super) flushed: bool,
    pub(super) result: io::Result<()>,
}

/// An operation that is under way.
struct Slot<T> {
    operation: Operation,
    purpose: T,
    /// What its list had when it began.
    held: usize,
    /// How often in a row it would have had to wait.
    waits: u32,
}

impl<T> Slot<T> {
    /// The kernel has done a part of it, with this `result`. By which flags it is to be given the next; none if that was the last one.
    fn advance(&mut self, result: i32) -> io::Result<Option<Flags>> {
        // A device of the host's may have no room for all of a large one, and before Linux 6.3 that was said here. One of the kernel's
        // own threads waits for it then.
        self.waits = if result == -libc::EAGAIN { self.waits + 1 } else { 0 };
        if (1..=WAITS_MAX).contains(&self.waits) {
            return Ok(Some(Flags::ASYNC));
        }
        Ok(if self.operation.advance(result)? { None } else { Some(Flags::empty()) })
    }
}

impl<T> std::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl<T> AsRawFd for Ring<T> {
    /// It is readable when an operation is over.
    fn as_raw_fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }
}

impl<T> Ring<T> {
    /// One for `entries` operations on `file` at once, and for no more once their lists have `enough` bytes. Fails where the host has
    /// no `io_uring`, or does not let this process have it.
    pub(super) fn new(file: &File, entries: u16, enough: usize) -> io::Result<Self> {
        let uring = IoUring::builder().setup_r_disabled().build(entries.into())?;
        uring.submitter().register_files(&[file.as_raw_fd()])?;
        uring.submitter().register_restrictions(&mut [
            Restriction::sqe_op(Readv::CODE),
            Restriction::sqe_op(Writev::CODE),
            Restriction::sqe_op(Fsync::CODE),
            Restriction::sqe_flags_required(Flags::FIXED_FILE.bits()),
            Restriction::sqe_flags_allowed(Flags::ASYNC.bits()),
        ])?;
        uring.submitter().register_enable_rings()?;
        let slots = (0..entries).map(|_| None).collect();
        Ok(Self { uring, slots, free: (0..entries.into()).collect(), held: 0, enough: enough.max(1), stuck: false })
    }

    /// Operations that are under way.
    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is room for another operation. If not, there will be when one is over.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() && self.held < self.enough
    }

    /// Whether the kernel has no room for what there is already.
    pub(super) const fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Tells the kernel what is new. What it has no room for stays in the ring, for the next time.
    fn submit(&mut self) {
        if !self.uring.submission().is_empty() {
            let _ = self.uring.submit();
            self.stuck = !self.uring.submission().is_empty();
        }
    }

    /// Puts `operation` into the ring, which has room. The kernel is told by [`over`](Self::over).
    pub(super) fn start(&mut self, operation: Operation, purpose: T) {
        let Some(number) = self.free.pop() else { return };
        let held = operation.held();
        self.held += held;
        if let Some(slot) = self.slots.get_mut(number) {
            *slot = Some(Slot { operation, purpose, held, waits: 0 });
        }
        self.push(number, Flags::empty());
    }

    fn push(&mut self, number: usize, flags: Flags) {
        let Some(Some(slot)) = self.slots.get(number) else { return };
        let entry = slot.operation.entry().user_data(number as u64).flags(flags);
        // SAFETY: what the entry names is in the slot: guest memory that is mapped as long as the slot has it, and the list of its
        // pieces. The slot is emptied when the kernel says that the operation is over, and at no other time.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        // There is an entry for each slot, and a slot has one at a time.
        debug_assert!(pushed.is_ok(), "a ring without room");
    }

    /// Tells the kernel what is new. An operation that is over by now, if there is one, and how.
    pub(super) fn over(&mut self) -> Option<Over<T>> {
        loop {
            self.submit();
            let done: cqueue::Entry = self.uring.completion().next()?;
            let number = usize::try_from(done.user_data()).unwrap_or(usize::MAX);
            let Some(slot) = self.slots.get_mut(number) else { continue };
            let Some(begun) = slot else { continue };
            match begun.advance(done.result()) {
                Ok(Some(flags)) => self.push(number, flags),
                result => {
                    let Slot { operation, purpose, held, .. } = slot.take()?;
                    self.held -= held;
                    self.free.push(number);
                    let flushed = matches!(operation, Operation::Flush);
                    return Some(Over { purpose, flushed, result: result.map(drop) });
                }
            }
        }
    }

    /// Waits until an operation is over, if one is under way; or for less, when a signal comes.
    fn wait(&self) -> io::Result<()> {
        match self.uring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                // It may have room later; until then nobody is to be kept from the processor.
                Some(libc::EAGAIN | libc::EBUSY) => {
                    thread::sleep(NO_ROOM);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }
}

impl<T> Drop for Ring<T> {
    /// The kernel does not forget what it has begun because the ring is closed: memory stays until it is over.
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.over().is_none() && self.wait().is_err() {
                self.slots.drain(..).for_each(std::mem::forget);
                return;
            }
        }
    }
}

impl Operation {
    /// Bytes of its list of pieces.
    const fn held(&self) -> usize {
        match self {
            Self::Transfer { vectors, .. } => vectors.held(),
            Self::Flush => 0,
        }
    }

    fn entry(&self) -> Entry {
        match self {
            Self::Transfer { direction, offset, vectors, .. } => {
                let (pieces, count) = vectors.rest();
                match direction {
                    Direction::Read => Readv::new(FILE, pieces, count).offset(*offset).build(),
                    Direction::Write => Writev::new(FILE, pieces, count).offset(*offset).build(),
                }
            }
            Self::Flush => Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        }
    }

    /// The kernel has done a part of it, with this `result`. Whether that was the last one; if not, it is to be given the next.
    fn advance(&mut self, result: i32) -> io::Result<bool> {
        let count = match usize::try_from(result) {
            Ok(count) => count,
            Err(_) if result == -libc::EINTR => return Ok(false),
            Err(_) => return Err(io::Error::from_raw_os_error(-result)),
        };
        let Self::Transfer { offset, vectors, flush, .. } = self else { return Ok(true) };
        vectors.done(count)?;
        *offset += count as u64;
        if vectors.left() > 0 {
            return Ok(false);
        }
        if *flush {
            *self = Self::Flush;
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use io_uring::opcode::{OpenAt, Read, Socket};
    use io_uring::types::Fd;
    use std::io::Write;

    use vm_memory::GuestAddress;

    use super::*;
    use crate::devices::virtio::Segment;

    fn ring(file: &File) -> Option<Ring<u8>> {
        Ring::new(file, 4, 64).map_err(|error| eprintln!("SKIPPED: no io_uring here: {error}")).ok()
    }

    /// What becomes of an entry that a thread which has been taken over puts into the ring.
    fn smuggle(ring: &mut Ring<u8>, entry: &Entry) -> i32 {
        // SAFETY: what it names outlives it, or it is not done.
        unsafe { ring.uring.submission().push(entry) }.unwrap();
        ring.uring.submit_and_wait(1).unwrap();
        ring.uring.completion().next().unwrap().result()
    }

    #[test]
    fn a_ring_has_room_until_its_lists_are_enough() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(512).unwrap();
        let Some(mut ring) = ring(&file) else { return };
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let begin = |ring: &mut Ring<u8>, pieces: u64| {
            let segments: Vec<_> =
                (0..pieces).map(|at| Segment { address: GuestAddress(at * 16), length: 16 }).collect();
            let vectors = Vectors::new(&memory, &segments, Direction::Read).unwrap();
            ring.start(Operation::Transfer { direction: Direction::Read, offset: 0, vectors, flush: false }, 0);
        };
        // Pieces have 16 bytes each: two of two pieces are enough, and so is one of many.
        begin(&mut ring, 2);
        assert!(ring.has_room() && ring.held == 32);
        begin(&mut ring, 2);
        assert!(!ring.has_room() && ring.in_flight() == 2);
        for left in [1, 0] {
            while ring.over().is_none() {
                ring.wait().unwrap();
            }
            assert_eq!((ring.has_room(), ring.held), (true, 32 * left));
        }
        begin(&mut ring, 20);
        assert!(!ring.has_room());
        ring.wait().unwrap();
        assert!(ring.over().is_some() && ring.has_room());
    }

    /// The first operation that is over.
    fn over(ring: &mut Ring<u8>) -> Over<u8> {
        loop {
            if let Some(over) = ring.over() {
                return over;
            }
            ring.wait().unwrap();
        }
    }

    #[test]
    fn what_would_have_to_wait_is_asked_for_again_but_not_for_ever() {
        let mut slot = Slot { operation: Operation::Flush, purpose: (), held: 0, waits: 0 };
        for _ in 0..2 {
            assert!((0..WAITS_MAX).all(|_| slot.advance(-libc::EAGAIN).unwrap() == Some(Flags::ASYNC)));
            assert_eq!(slot.advance(-libc::EINTR).unwrap(), Some(Flags::empty()), "and it begins anew");
        }
        assert!((0..WAITS_MAX).all(|_| slot.advance(-libc::EAGAIN).is_ok()));
        assert_eq!(slot.advance(-libc::EAGAIN).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        assert_eq!(slot.advance(0).unwrap(), None);
    }

    #[test]
    fn a_flush_that_fails_is_told_from_a_transfer_that_does() {
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 0x1000)]).unwrap();
        let write = || {
            let segments = [Segment { address: GuestAddress(0), length: 16 }];
            let vectors = Vectors::new(&memory, &segments, Direction::Write).unwrap();
            Operation::Transfer { direction: Direction::Write, offset: 0, vectors, flush: true }
        };
        // It takes what is written, and cannot be synced; the other way round.
        for (path, flushed, error) in [("/dev/null", true, libc::EINVAL), ("/dev/full", false, libc::ENOSPC)] {
            let Some(mut ring) = ring(&File::options().write(true).open(path).unwrap()) else { return };
            ring.start(write(), 0);
            let over = over(&mut ring);
            assert_eq!((over.flushed, over.result.unwrap_err().raw_os_error()), (flushed, Some(error)), "{path}");
        }
    }

    #[test]
    fn a_ring_takes_nothing_but_transfers_of_its_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 512]).unwrap();
        let Some(mut ring) = ring(&file) else { return };
        let path = c"/dev/null".as_ptr();
        let mut byte = 0u8;
        let other = File::open("/dev/zero").unwrap();
        let foreign = Fd(other.as_raw_fd());
        let piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        for (what, entry) in [
            ("open", OpenAt::new(Fd(libc::AT_FDCWD), path).build()),
            ("socket", Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build()),
            ("read another file", Readv::new(foreign, &raw const piece, 1).build()),
            ("read in another way", Read::new(FILE, &raw mut byte, 1).build()),
        ] {
            assert_eq!(smuggle(&mut ring, &entry), -libc::EACCES, "{what}");
        }
        for flags in [Flags::empty(), Flags::ASYNC] {
            let entry = Readv::new(FILE, &raw const piece, 1).build().flags(flags);
            assert_eq!((smuggle(&mut ring, &entry), byte), (1, 7), "{flags:?}");
            byte = 0;
        }
        // And that cannot be changed.
        let again = ring.uring.submitter().register_files_update(0, &[other.as_raw_fd()]);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
}
