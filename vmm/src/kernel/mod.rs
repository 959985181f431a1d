// SPDX-License-Identifier: Apache-2.0
//! Kernel images: what is in the file, checked before anything is created, then loaded in place.
//!
//! Two formats, both started by the 64-bit entry of the Linux boot protocol (`Documentation/arch/x86/boot.rst`):
//! an ELF `vmlinux`, which needs no decompression on the boot path, and a `bzImage`.

mod bzimage;
mod elf;
pub mod zero_page;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use linux_loader::loader::bootparam::setup_header;
use linux_loader::loader::{BzImage, Elf, KernelLoader};
use vm_memory::GuestAddress;

use crate::layout;
use crate::memory::{GpaRange, GuestMemory};

/// Why a file is not a kernel that can be started. Each message names the file.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The file could not be read.
    #[error("kernel {path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is of no format that can be started.
    #[error("kernel {path}: not a kernel: {found}; an x86-64 ELF vmlinux or a bzImage is needed")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: String,
    },
    /// The file is a kernel or a program for another machine.
    #[error("kernel {path}: built for {found}; this machine runs x86-64 kernels")]
    WrongMachine {
        /// The file.
        path: PathBuf,
        /// The machine it is for.
        found: String,
    },
    /// The file ends before its contents do.
    #[error("kernel {path}: truncated: {part} ends at byte {needed}, the file has {length}")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What is cut off.
        part: &'static str,
        /// Bytes that the file should have at least.
        needed: u64,
        /// Bytes that it has.
        length: u64,
    },
    /// The headers contradict themselves.
    #[error("kernel {path}: malformed: {what}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
    /// Firmware starts kernels as EFI programs, which this one is not.
    #[error("kernel {path}: {found}; firmware needs a bzImage with an EFI stub (CONFIG_EFI_STUB)")]
    NoEfiStub {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Loading failed after the checks: memory too small, or the file changed.
    #[error("kernel {path}: cannot be loaded at {range}")]
    Load {
        /// The file.
        path: PathBuf,
        /// Guest memory that it needs.
        range: GpaRange,
        /// Why.
        source: linux_loader::loader::Error,
    },
}

/// What kind of image a file holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Format {
    Elf,
    BzImage {
        header: setup_header,
        /// Whether it is an EFI program, too.
        efi_stub: bool,
    },
}

/// A kernel image that passed every check which needs no guest memory.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    file: File,
    format: Format,
    entry: u64,
    footprint: GpaRange,
}

impl Image {
    /// Reads the headers of `file` and checks everything that they promise against its length.
    pub fn inspect(path: &Path, file: &File) -> Result<Self, KernelError> {
        let reader = Reader::new(path, file)?;
        let magic = reader.prefix::<4>();
        let (format, entry, footprint) = if magic == *b"\x7fELF" {
            let (entry, footprint) = elf::inspect(&reader)?;
            (Format::Elf, entry, footprint)
        } else {
            let (header, entry, footprint) = bzimage::inspect(&reader)?;
            (Format::BzImage { header, efi_stub: bzimage::has_efi_stub(&reader) }, entry, footprint)
        };
        Ok(Self { path: path.to_owned(), file: reader.file, format, entry, footprint })
    }

    /// Guest physical addresses that the kernel occupies until it has set up its own memory management.
    #[must_use]
    pub fn footprint(&self) -> GpaRange {
        self.footprint
    }

    /// GPA of the 64-bit entry point.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// The setup header that the image brings (a bzImage), to be completed by the boot loader.
    #[must_use]
    pub fn setup_header(&self) -> Option<setup_header> {
        match self.format {
            Format::Elf => None,
            Format::BzImage { header, .. } => Some(header),
        }
    }

    /// Bytes of the setup part of an image that firmware can start; an error if it cannot.
    pub fn efi_setup_length(&self) -> Result<u64, KernelError> {
        let found = match self.format {
            Format::BzImage { header, efi_stub: true } => return Ok(bzimage::setup_length(&header)),
            Format::BzImage { .. } => "a bzImage without an EFI stub",
            Format::Elf => "an ELF vmlinux",
        };
        Err(KernelError::NoEfiStub { path: self.path.clone(), found })
    }

    /// Copies the image to its place in guest memory.
    pub fn load(&mut self, memory: &GuestMemory) -> Result<(), KernelError> {
        let high = Some(GuestAddress(layout::HIGH_MEMORY_START));
        let loaded = match self.format {
            Format::Elf => Elf::load(memory, None, &mut self.file, high),
            Format::BzImage { .. } => {
                BzImage::load(memory, Some(GuestAddress(layout::HIGH_MEMORY_START)), &mut self.file, high)
            }
        };
        loaded.map(|_| ()).map_err(|source| KernelError::Load {
            path: self.path.clone(),
            range: self.footprint,
            source,
        })
    }
}

/// A file with its name and length, read at offsets, with errors that name it.
#[derive(Debug)]
struct Reader {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Reader {
    fn new(path: &Path, file: &File) -> Result<Self, KernelError> {
        let unreadable = |source| KernelError::Read { path: path.to_owned(), source };
        let file = file.try_clone().map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        Ok(Self { path: path.to_owned(), file, length })
    }

    /// The first `N` bytes, zeroes where the file is shorter.
    fn prefix<const N: usize>(&self) -> [u8; N] {
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
    fn read(&self, offset: u64, bytes: &mut [u8], part: &'static str) -> Result<(), KernelError> {
        self.need(offset, bytes.len() as u64, part)?;
        self.file.read_exact_at(bytes, offset).map_err(|source| KernelError::Read { path: self.path.clone(), source })
    }

    /// Checks that the file holds `size` bytes at `offset`.
    fn need(&self, offset: u64, size: u64, part: &'static str) -> Result<(), KernelError> {
        let Some(needed) = offset.checked_add(size) else {
            return Err(self.malformed(format!("{part} at offset {offset:#x} has impossible size {size:#x}")));
        };
        if needed > self.length {
            return Err(KernelError::Truncated { path: self.path.clone(), part, needed, length: self.length });
        }
        Ok(())
    }

    fn malformed(&self, what: String) -> KernelError {
        KernelError::Malformed { path: self.path.clone(), what }
    }

    fn unknown(&self, found: impl Into<String>) -> KernelError {
        KernelError::Unknown { path: self.path.clone(), found: found.into() }
    }

    fn wrong_machine(&self, found: impl Into<String>) -> KernelError {
        KernelError::WrongMachine { path: self.path.clone(), found: found.into() }
    }
}

#[cfg(test)]
mod tests;
