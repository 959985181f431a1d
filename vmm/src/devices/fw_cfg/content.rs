// SPDX-License-Identifier: Apache-2.0
//! What an item holds.

use std::fs::File;
use std::sync::Arc;

use crate::bits::index;

/// The bytes of an item.
#[derive(Debug)]
pub enum Content {
    /// Bytes of our own.
    Bytes(Vec<u8>),
    /// A part of a file, which is read when the guest asks: kernels and initramfs are large. Only DMA gives it, which does not
    /// keep a vCPU waiting for a disk; by the data register it reads as zeroes. What the file has lost since is an error.
    File {
        /// The file, whose position is nobody else's.
        file: Arc<File>,
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

    /// Puts what begins at `offset` into `data`, as far as either goes. False if it is a file, of which nothing is read.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> bool {
        let Self::Bytes(bytes) = self else { return false };
        let from = bytes.iter().skip(index(offset));
        data.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        true
    }
}
