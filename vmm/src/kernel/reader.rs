// SPDX-License-Identifier: Apache-2.0
//! A file that may be a kernel, read at offsets.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::KernelError;

/// A file with its name and length, read at offsets, with errors that name it.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) length: u64,
}

impl Reader {
    pub(super) fn new(path: &Path, file: &File) -> Result<Self, KernelError> {
        let unreadable = |source| KernelError::Read { path: path.to_owned(), source };
        let file = file.try_clone().map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        Ok(Self { path: path.to_owned(), file, length })
    }

    /// The first `N` bytes, zeroes where the file is shorter.
    pub(super) fn prefix<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        let mut have = 0;
        while have < N {
            match self.file.read_at(&mut bytes[have..], have as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => have += n,
            }
        }
        bytes
    }

    /// `bytes.len()` bytes at `offset`; `part` says what they are when the file ends too early.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8], part: &'static str) -> Result<(), KernelError> {
        self.need(offset, bytes.len() as u64, part)?;
        self.file.read_exact_at(bytes, offset).map_err(|source| KernelError::Read { path: self.path.clone(), source })
    }

    /// Checks that the file holds `size` bytes at `offset`.
    pub(super) fn need(&self, offset: u64, size: u64, part: &'static str) -> Result<(), KernelError> {
        let Some(needed) = offset.checked_add(size) else {
            return Err(self.malformed(format!("{part} at offset {offset:#x} has impossible size {size:#x}")));
        };
        if needed > self.length {
            return Err(KernelError::Truncated { path: self.path.clone(), part, needed, length: self.length });
        }
        Ok(())
    }

    pub(super) fn malformed(&self, what: String) -> KernelError {
        KernelError::Malformed { path: self.path.clone(), what }
    }

    pub(super) fn unknown(&self, found: impl Into<String>) -> KernelError {
        KernelError::Unknown { path: self.path.clone(), found: found.into() }
    }

    pub(super) fn wrong_machine(&self, found: impl Into<String>) -> KernelError {
        KernelError::WrongMachine { path: self.path.clone(), found: found.into() }
    }
}
