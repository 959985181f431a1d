// SPDX-License-Identifier: Apache-2.0
//! Sectors that a guest no longer needs, or wants to be zero, without sending zeros (virtio 1.2, section 5.2.6).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use virtio_bindings::virtio_blk::VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;

use super::SECTOR_SIZE;
use crate::bits::low32;

/// `struct virtio_blk_discard_write_zeroes`: sector u64, sectors u32, flags u32.
pub(super) const RANGE_SIZE: usize = 16;
/// Most ranges that one request discards.
pub(super) const DISCARD_RANGES_MAX: u32 = 16;
/// Longest of them, in sectors: 64 MiB, so that no request keeps a disk with many small pieces long.
pub(super) const DISCARD_SECTORS_MAX: u32 = 1 << 17;
/// Longest range of zeros, of which a request has one: 32 MiB, in sectors. Where the file system cannot do it, they are written.
pub(super) const ZEROES_SECTORS_MAX: u32 = 1 << 16;
/// Zeros that are written at once, where files that are open for direct I/O take them.
#[repr(align(4096))]
struct Zeros([u8; CHUNK]);
static ZEROS: Zeros = Zeros([0; CHUNK]);
const CHUNK: usize = 64 << 10;

/// What is to become of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Erase {
    /// It is not needed any more, and may become anything.
    Discard,
    /// It is to be zero.
    Zeroes,
}

/// Sectors, as a driver names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) sector: u64,
    pub(super) sectors: u32,
    flags: u32,
}

impl Range {
    pub(super) fn read(bytes: [u8; RANGE_SIZE]) -> Self {
        let [sector @ .., _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, _, _, _, _, rest @ ..] = bytes;
        let rest = u64::from_le_bytes(rest);
        Self { sector: u64::from_le_bytes(sector), sectors: low32(rest), flags: low32(rest >> 32) }
    }

    /// Whether the driver asks for what there is. Only zeros may be said to need no room.
    pub(super) const fn is_known(&self, erase: Erase) -> bool {
        match erase {
            Erase::Discard => self.flags == 0,
            Erase::Zeroes => self.flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP == 0,
        }
    }

    /// Whether it is no longer than the driver was told, and ends before sector `end`.
    pub(super) fn fits(&self, erase: Erase, end: u64) -> bool {
        let most = match erase {
            Erase::Discard => DISCARD_SECTORS_MAX,
            Erase::Zeroes => ZEROES_SECTORS_MAX,
        };
        self.sectors <= most && self.sector.checked_add(self.sectors.into()).is_some_and(|last| last <= end)
    }

    /// Does it. With `sparse`, what is zero needs no room in the file.
    pub(super) fn erase(&self, erase: Erase, file: &File, sparse: bool) -> io::Result<()> {
        // No overflow: it is on the disk, whose size in bytes is a u64.
        let (offset, length) = (self.sector * SECTOR_SIZE, u64::from(self.sectors) * SECTOR_SIZE);
        if length == 0 {
            return Ok(());
        }
        let unmap = erase == Erase::Discard || sparse && self.flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
        let how = if unmap { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        let done = retry_on_intr(|| fallocate(file, how | FallocateFlags::KEEP_SIZE, offset, length));
        // A device of the host with larger sectors may say that the range is not whole ones.
        match (done, erase) {
            // A hint that nobody can follow is followed.
            (Ok(()), _) | (Err(Errno::OPNOTSUPP | Errno::INVAL), Erase::Discard) => Ok(()),
            (Err(Errno::OPNOTSUPP | Errno::INVAL), Erase::Zeroes) => write_zeroes(file, offset, length),
            (Err(error), _) => Err(error.into()),
        }
    }
}

fn write_zeroes(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let part = ZEROS.0.get(..usize::try_from(length - done).unwrap_or(CHUNK).min(CHUNK)).unwrap_or(&ZEROS.0);
        file.write_all_at(part, offset + done)?;
        done += part.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::tempfile::TempFile;

    use super::*;

    #[test]
    fn zeros_that_no_file_system_makes_are_written() {
        let file = TempFile::new().unwrap();
        file.as_file().write_all_at(&vec![7; 3 * CHUNK], 0).unwrap();
        write_zeroes(file.as_file(), 512, 2 * CHUNK as u64 + 512).unwrap();
        let mut bytes = vec![0; 3 * CHUNK];
        file.as_file().read_exact_at(&mut bytes, 0).unwrap();
        let expected = |at: usize| if (512..2 * CHUNK + 1024).contains(&at) { 0 } else { 7 };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }
}
