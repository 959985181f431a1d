// SPDX-License-Identifier: Apache-2.0
//! Guest memory as the kernel takes it for a transfer: many pieces in one call.
#![expect(
    unsafe_code,
    reason = "preadv, pwritev and writev on memory that a guest may change meanwhile have no safe wrapper"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use libc::iovec;
use vm_memory::{GuestMemory as _, GuestMemoryError, Permissions};

use crate::devices::virtio::Segment;
use crate::memory::GuestMemory;

/// Most pieces that one call takes (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Which way bytes go, seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Into guest memory.
    Read,
    /// Out of it.
    Write,
}

/// Pieces of guest memory, in the order of the file's bytes, and how far a transfer is.
pub struct Vectors {
    pieces: Vec<iovec>,
    /// The first that is not done.
    next: usize,
    /// Bytes that are not done.
    left: u64,
    /// What they lie in, which stays where it is as long as they are here.
    _memory: GuestMemory,
}

// SAFETY: the addresses are those of a mapping that every thread has, and that `_memory` keeps.
unsafe impl Send for Vectors {}

impl std::fmt::Debug for Vectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vectors").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Vectors {
    /// The memory of `segments`, all of which must be there.
    pub fn new(memory: &GuestMemory, segments: &[Segment], direction: Direction) -> Result<Self, GuestMemoryError> {
        let access = match direction {
            Direction::Read => Permissions::Write,
            Direction::Write => Permissions::Read,
        };
        let mut pieces = Vec::with_capacity(segments.len());
        let mut left = 0;
        for segment in segments {
            for slice in memory.get_slices(segment.address, segment.length as usize, access)? {
                let slice = slice?;
                left += slice.len() as u64;
                pieces.push(iovec { iov_base: slice.ptr_guard_mut().as_ptr().cast(), iov_len: slice.len() });
            }
        }
        Ok(Self { pieces, next: 0, left, _memory: memory.clone() })
    }

    /// Bytes of host memory that the list takes.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.pieces.capacity() * size_of::<iovec>()
    }

    /// Bytes that are not done.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Whether each piece begins at a multiple of `address`, and has a multiple of `length` bytes; both are powers of two.
    #[must_use]
    pub fn are_aligned(&self, address: u32, length: u32) -> bool {
        let is_multiple = |number: usize, of: u32| number.is_multiple_of(of as usize);
        self.pieces
            .iter()
            .all(|piece| is_multiple(piece.iov_base.addr(), address) && is_multiple(piece.iov_len, length))
    }

    /// What the next call is to be given: where it lies and how many pieces it has. It stays there until [`done`](Self::done).
    #[must_use]
    pub fn rest(&self) -> (*const iovec, u32) {
        let rest = self.pieces.get(self.next..).unwrap_or_default();
        (rest.as_ptr(), u32::try_from(rest.len().min(PIECES_MAX)).unwrap_or(0))
    }

    /// So many `bytes` are done. None means that the file has come to its end.
    pub fn done(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(bytes as u64);
        let mut bytes = bytes;
        while let Some(piece) = self.pieces.get_mut(self.next) {
            let part = bytes.min(piece.iov_len);
            piece.iov_base = piece.iov_base.wrapping_byte_add(part);
            piece.iov_len -= part;
            bytes -= part;
            if piece.iov_len > 0 {
                break;
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Writes all of it to `file` by one call, as one message: how much the file takes of it is its business.
    pub fn write(&self, file: &File) -> io::Result<()> {
        if self.pieces.len() > PIECES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (pieces, count) = self.rest();
        // SAFETY: the pieces are guest memory that is mapped, which everybody takes for memory that changes at any time.
        let written = unsafe { libc::writev(file.as_raw_fd(), pieces, i32::try_from(count).unwrap_or(0)) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Moves all that is left from or to `offset` of `file`, and waits for it.
    pub fn transfer(&mut self, file: &File, direction: Direction, offset: u64) -> io::Result<()> {
        let end = offset + self.left;
        while self.left > 0 {
            let (pieces, count) = self.rest();
            let at = i64::try_from(end - self.left).map_err(|_| io::ErrorKind::InvalidInput)?;
            let count = i32::try_from(count).unwrap_or(0);
            let result = match direction {
                // SAFETY: the pieces are guest memory that is mapped, which everybody takes for memory that changes at any time.
                Direction::Read => unsafe { libc::preadv(file.as_raw_fd(), pieces, count, at) },
                // SAFETY: as above.
                Direction::Write => unsafe { libc::pwritev(file.as_raw_fd(), pieces, count, at) },
            };
            match usize::try_from(result) {
                Ok(bytes) => self.done(bytes)?,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}
