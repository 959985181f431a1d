// SPDX-License-Identifier: Apache-2.0
//! Why a disk cannot be, and why a request of it fails.

use std::io;

use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP};
use vm_memory::GuestMemoryError;

use super::SECTOR_SIZE;
use super::direct::BounceError;

/// Why a file cannot be a disk.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Its size cannot be found.
    #[error("cannot find the size of the disk")]
    Size(#[source] io::Error),
    /// It holds nothing.
    #[error("the disk is empty")]
    Empty,
    /// It does not consist of sectors.
    #[error("the disk has {0} bytes, which is not a multiple of {SECTOR_SIZE}")]
    Ragged(u64),
}

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("the request breaks the rules of the protocol")]
    Malformed,
    #[error("request type {0} is not supported")]
    Unsupported(u32),
    #[error("a range has flags that are not supported")]
    Flags,
    #[error("the disk is read-only")]
    ReadOnly,
    #[error("sector {sector} and {bytes} bytes from it are not all on the disk, or are too much for one request")]
    Range { sector: u64, bytes: u64 },
    #[error("guest memory")]
    Memory(#[from] GuestMemoryError),
    #[error("host I/O")]
    Io(#[from] io::Error),
}

impl From<BounceError> for RequestError {
    fn from(error: BounceError) -> Self {
        match error {
            BounceError::Memory(error) => Self::Memory(error),
            BounceError::Io(error) => Self::Io(error),
        }
    }
}

impl RequestError {
    pub(super) const fn status(&self) -> u32 {
        match self {
            Self::Unsupported(_) | Self::Flags => VIRTIO_BLK_S_UNSUPP,
            _ => VIRTIO_BLK_S_IOERR,
        }
    }

    /// What the host's file system or device has said, if it is not the guest's fault.
    pub(super) const fn host(&self) -> Option<&io::Error> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
