// SPDX-License-Identifier: Apache-2.0
//! Kernel images: what is in the file, checked before anything is created, then loaded in place.
//!
//! Two formats, both started by the 64-bit entry of the Linux boot protocol (`Documentation/arch/x86/boot.rst`):
//! an ELF `vmlinux`, which needs no decompression on the boot path, and a `bzImage`.

mod bzimage;
mod elf;
mod error;
mod reader;
pub mod zero_page;

use std::fs::File;
use std::path::{Path, PathBuf};

use linux_loader::loader::bootparam::setup_header;
use linux_loader::loader::{BzImage, Elf, KernelLoader};
use vm_memory::GuestAddress;

use crate::layout;
use crate::memory::{GpaRange, GuestMemory};
use reader::Reader;

pub use error::KernelError;

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

#[cfg(test)]
mod tests;
