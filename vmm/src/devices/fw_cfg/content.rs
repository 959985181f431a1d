// SPDX-License-Identifier: Apache-2.0
//! What an item holds.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use vm_memory::{Bytes, GuestAddress};

use crate::bits::index;
use crate::memory::{GpaRange, GuestMemory};

/// The bytes of an item.
#[derive(Debug)]
pub enum Content {
    /// Bytes of our own.
    Bytes(Vec<u8>),
    /// A part of a file, which is read whenever the guest asks: kernels and initramfs are large. What the file has lost since
    /// reads as zeroes, or as an error by DMA.
    File {
        /// The file, whose position is nobody else's.
        file: File,
        /// Where the part begins, in bytes.
        start: u64,
        /// Its length in bytes.
        length: u64,
    },
}

impl Content {
    /// A number of 16 bits, as keys of numbers hold it.
    #[must_use]
    pub fn half(number: u16) -> Self {
        Self::Bytes(number.to_le_bytes().to_vec())
    }

    /// A number of 32 bits.
    #[must_use]
    pub fn word(number: u32) -> Self {
        Self::Bytes(number.to_le_bytes().to_vec())
    }

    /// Bytes in it.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// Puts what begins at `offset` into `data`, as far as either goes.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => {
                let from = bytes.iter().skip(index(offset));
                data.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
            Self::File { file, start, length } => {
                let left = index(length.saturating_sub(offset));
                let count = data.len().min(left);
                if let Some(data) = data.get_mut(..count)
                    && let Err(error) = file.read_exact_at(data, start + offset)
                {
                    tracing::warn!(%error, "fw_cfg: a file cannot be read any more");
                }
            }
        }
    }

    /// Copies what begins at `offset` to all of `target`; the item has that much.
    pub(super) fn copy(&self, offset: u64, memory: &GuestMemory, target: GpaRange) -> io::Result<()> {
        let (address, count) = (GuestAddress(target.start()), index(target.length()));
        match self {
            Self::Bytes(bytes) => {
                let from =
                    bytes.get(index(offset)..).and_then(|rest| rest.get(..count)).ok_or(io::ErrorKind::InvalidInput)?;
                memory.write_slice(from, address).map_err(io::Error::other)
            }
            Self::File { file, start, .. } => {
                let mut file = file;
                file.seek(SeekFrom::Start(start + offset))?;
                memory.read_exact_volatile_from(address, &mut file, count).map_err(io::Error::other)
            }
        }
    }
}
