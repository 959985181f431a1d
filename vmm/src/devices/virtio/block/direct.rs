// SPDX-License-Identifier: Apache-2.0
//! Transfers that do not go by the host's page cache (`O_DIRECT`), and what a file wants of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, StatxFlags, statx};
use vm_memory::GuestMemoryError;

use super::SECTOR_SIZE;
use crate::bits::low32;
use crate::devices::virtio::vectors::Direction;
use crate::devices::virtio::{Segment, gather, length, scatter};
use crate::memory::GuestMemory;

/// What is tried where the file system does not say what it wants.
const TRIED: [u32; 4] = [512, 1024, 2048, 4096];
/// `STATX_DIO_READ_ALIGN`, since Linux 6.14.
const DIO_READ_ALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2_0000);
/// No device of the host has larger sectors.
const ALIGNMENT_MAX: u32 = 4096;
/// What is moved at once by a buffer of our own.
const BOUNCE: usize = 128 << 10;

/// What addresses in memory, and places and lengths in a file, are multiples of (statx(2), `STATX_DIOALIGN`): the length of each
/// piece, too, not only that of all. Both are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Of addresses in memory.
    pub memory: u32,
    /// Of places in the file, and of lengths: at least a sector.
    pub offset: u32,
}

impl Alignment {
    /// What `file` wants, which is open for direct I/O. That it has none is an error, too.
    pub fn of(file: &File) -> io::Result<Self> {
        let said = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN | DIO_READ_ALIGN)?;
        let has = |flags: StatxFlags| said.stx_mask & flags.bits() != 0;
        if has(StatxFlags::DIOALIGN) {
            let reads = has(DIO_READ_ALIGN).then_some(said.stx_dio_read_offset_align);
            if let Some(found) = Self::said(said.stx_dio_mem_align, said.stx_dio_offset_align, reads)? {
                return Ok(found);
            }
        }
        let mut buffer = Aligned::new();
        for offset in TRIED {
            match file.read_at(buffer.start(offset as usize), offset.into()) {
                Ok(_) => return Ok(Self { memory: offset, offset }),
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }

    /// What a file system says of a file: what goes for memory, for the file, and for reads of it. An error: it has no direct I/O,
    /// though it would take it. None: it is to be tried.
    fn said(memory: u32, offset: u32, reads: Option<u32>) -> io::Result<Option<Self>> {
        if memory == 0 || offset == 0 {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // XFS writes whole blocks once a file shares some with a copy, and less by the page cache. Sectors cannot change their size by
        // that: what the guest has on its disk is found by them.
        let offset = reads.filter(|reads| *reads > 0).unwrap_or(offset).max(low32(SECTOR_SIZE));
        let is_usable = |alignment: u32| alignment.is_power_of_two() && alignment <= ALIGNMENT_MAX;
        Ok((is_usable(memory) && is_usable(offset)).then_some(Self { memory, offset }))
    }
}

/// Memory of our own that any file takes.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0; BOUNCE + ALIGNMENT_MAX as usize];
        let from = bytes.as_ptr().align_offset(ALIGNMENT_MAX as usize);
        Self { bytes, from }
    }

    /// The first `length` bytes of it, at most [`BOUNCE`].
    fn start(&mut self, length: usize) -> &mut [u8] {
        self.bytes.get_mut(self.from..).and_then(|bytes| bytes.get_mut(..length)).unwrap_or_default()
    }
}

/// Why a transfer has failed.
pub(super) enum BounceError {
    Memory(GuestMemoryError),
    Io(io::Error),
}

/// Moves the bytes of `segments`, which `file` would not take as they lie, from or to `offset`. As many as all of them have are on
/// the disk, and the file takes offset and length.
pub(super) fn bounce(
    file: &File,
    direction: Direction,
    offset: u64,
    memory: &GuestMemory,
    segments: &[Segment],
) -> Result<(), BounceError> {
    let mut buffer = Aligned::new();
    let (all, mut done) = (length(segments), 0);
    while done < all {
        let part = buffer.start(usize::try_from(all - done).unwrap_or(BOUNCE).min(BOUNCE));
        match direction {
            Direction::Read => {
                file.read_exact_at(part, offset + done).map_err(BounceError::Io)?;
                scatter(memory, segments, done, part).map_err(BounceError::Memory)?;
            }
            Direction::Write => {
                gather(memory, segments, done, part).map_err(BounceError::Memory)?;
                file.write_all_at(part, offset + done).map_err(BounceError::Io)?;
            }
        }
        done += part.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_says_what_it_wants() {
        let of = |memory, offset| Some(Alignment { memory, offset });
        let said = |memory, offset, reads| Alignment::said(memory, offset, reads).unwrap();
        assert_eq!(said(4, 512, None), of(4, 512));
        assert_eq!(said(4, 1, None), of(4, 512), "a sector at least");
        // It shares blocks with a copy.
        assert_eq!(said(4, 4096, Some(512)), of(4, 512));
        assert_eq!(said(4, 4096, Some(0)), of(4, 4096));
        for (memory, offset) in [(0, 0), (4, 0), (0, 512)] {
            assert!(Alignment::said(memory, offset, None).is_err(), "it has none");
        }
        for (memory, offset) in [(4, 8192), (3, 512)] {
            assert_eq!(said(memory, offset, None), None, "it is tried");
        }
    }
}
