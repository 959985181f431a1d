// SPDX-License-Identifier: Apache-2.0
//! Files that a VM reads, and what can be wrong with a file.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::field::Field;

/// What is wrong with a file that a field names.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", field.is(path.display()))]
pub struct FileError {
    /// The field.
    pub field: Field,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: FileFault,
}

/// What can be wrong with a file.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum FileFault {
    #[error("there is no such file: must exist")]
    Missing,
    #[error("permission denied: must be readable")]
    Unreadable,
    #[error("cannot be written: must be writable, or be used with readonly=on")]
    ReadOnlyDisk,
    #[error(
        "begins like a {format} image: must be raw, which \"qemu-img convert -O raw\" makes of one, or be used with image_type=raw"
    )]
    Image { format: &'static str },
    #[error("its file system has no direct I/O: must be on one that has, or be used with direct=off")]
    NotDirect,
    #[error("was replaced while it was opened: must stay what it is")]
    Replaced,
    #[error("is {found}: must be {must}")]
    Kind { found: &'static str, must: &'static str },
    #[error("is empty: must not be")]
    Empty,
    #[error("has {length} bytes: must be a multiple of {multiple}")]
    Length { length: u64, multiple: u64 },
    #[error("has {length} bytes: must be at least {min}")]
    TooShort { length: u64, min: u64 },
    #[error("has {length} bytes: must be at most {max}")]
    TooLong { length: u64, max: u64 },
    #[error("cannot be created: {0}: must be in a directory that exists and is writable")]
    NotCreated(io::ErrorKind),
    #[error("permission denied: must be writable")]
    Unwritable,
    #[error("is in use by another VM or process: must be used by no other, or by all with readonly=on")]
    InUse,
    #[error("is written by another VM or process: must be written by no other")]
    BeingWritten,
    #[error("no one reads from this pipe: must have a reader")]
    NoReader,
    #[error("is the file of {other}, too: must be a file of its own")]
    Shared { other: Field },
    #[error("{0}")]
    Io(io::Error),
}

impl FileFault {
    /// What an error of opening for reading means.
    pub(super) fn reading(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Unreadable,
            _ => Self::Io(error),
        }
    }

    /// The same, with the file that it is about.
    pub(super) fn of(self, field: Field, path: &Path) -> FileError {
        FileError { field, path: path.to_owned(), fault: self }
    }
}

/// A regular file, not empty, open for reading.
#[derive(Debug)]
pub struct InputFile {
    path: PathBuf,
    file: File,
    length: u64,
}

impl InputFile {
    /// Opens the file that `field` names.
    pub fn open(field: Field, path: &Path) -> Result<Self, FileError> {
        let open = || {
            // Opening a pipe would wait for a writer, so look first.
            let metadata = path.metadata().map_err(FileFault::reading)?;
            require_regular(&metadata)?;
            let file = OpenOptions::new().read(true).open(path).map_err(FileFault::reading)?;
            let length = file.metadata().map_err(FileFault::Io)?.len();
            if length == 0 {
                return Err(FileFault::Empty);
            }
            Ok(Self { path: path.to_owned(), file, length })
        };
        open().map_err(|fault: FileFault| fault.of(field, path))
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// The open file, for readers that move its position.
    pub const fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its length in bytes when it was opened; not 0.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }
}

fn require_regular(metadata: &Metadata) -> Result<(), FileFault> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(FileFault::Kind { found: kind(metadata.file_type()), must: "a regular file" })
}

/// What a file is, with its article.
pub(super) fn kind(file_type: FileType) -> &'static str {
    match file_type {
        _ if file_type.is_dir() => "a directory",
        _ if file_type.is_file() => "a regular file",
        _ if file_type.is_block_device() => "a block device",
        _ if file_type.is_char_device() => "a character device",
        _ if file_type.is_fifo() => "a pipe",
        _ if file_type.is_socket() => "a socket",
        _ => "something else",
    }
}

/// Which file or block device this is, by whatever path; none for kinds that any number of users can share.
pub(super) fn identity(file: &File) -> io::Result<Option<(u64, u64)>> {
    file.metadata().map(|metadata| identity_of(&metadata))
}

/// The same of what is known of it.
pub(super) fn identity_of(metadata: &Metadata) -> Option<(u64, u64)> {
    let file_type = metadata.file_type();
    if file_type.is_file() {
        Some((metadata.dev(), metadata.ino()))
    } else if file_type.is_block_device() {
        // Two nodes of one device are one device; no file system has the device number that this pairs it with.
        Some((u64::MAX, metadata.rdev()))
    } else {
        None
    }
}
