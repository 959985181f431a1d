// SPDX-License-Identifier: Apache-2.0
//! Files that a VM writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::file::{FileError, FileFault, kind};
use crate::field::Field;

/// A file to write to, open, with what it held before still in it.
///
/// [`commit`](Self::commit) empties it and hands it over. Until then nothing is lost: dropping it removes the file if opening
/// has created it. So a VM that turns out to be impossible leaves no trace, provided that the process returns from `main`.
#[derive(Debug)]
pub struct OutputFile {
    field: Field,
    path: PathBuf,
    /// None once it is committed.
    file: Option<File>,
    created: bool,
    append: bool,
}

impl OutputFile {
    /// Opens or creates the file that `field` names: a regular file, a character device or a pipe that someone reads.
    pub fn open(field: Field, path: &Path) -> Result<Self, FileError> {
        let output = |(file, created)| Self { field, path: path.to_owned(), file: Some(file), created, append: false };
        open(path).map(output).map_err(|fault| fault.of(field, path))
    }

    /// The field that names it.
    #[must_use]
    pub const fn field(&self) -> Field {
        self.field
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file; none is left only while [`commit`](Self::commit) takes it.
    pub(super) const fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Another handle to write to it. Before [`commit`](Self::commit) nothing may be written.
    pub fn writer(&self) -> Result<File, FileError> {
        let file = self.file.as_ref().ok_or(FileFault::Missing);
        let clone = file.and_then(|file| file.try_clone().map_err(FileFault::Io));
        clone.map_err(|fault| fault.of(self.field, &self.path))
    }

    /// Lets [`commit`](Self::commit) keep what is in it: what is written goes behind that.
    pub const fn append(&mut self) {
        self.append = true;
    }

    /// Whether [`commit`](Self::commit) keeps what is in it.
    #[must_use]
    pub const fn appends(&self) -> bool {
        self.append
    }

    /// Bytes that may be written if it is to have `limit` at most: what [`commit`](Self::commit) keeps in it counts.
    #[must_use]
    pub fn room(&self, limit: Option<u64>) -> u64 {
        let kept = self.file.as_ref().filter(|_| self.append).and_then(|file| file.metadata().ok());
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(kept.map_or(0, |kept| kept.len())))
    }

    /// Empties it (a device or a pipe has nothing to empty), unless it is to [`append`](Self::append), and hands it over, to be
    /// kept.
    pub fn commit(mut self) -> Result<File, FileError> {
        let append = self.append;
        let prepare = |file: &mut File| match file.metadata()?.is_file() {
            // Every handle of it has one position.
            true if append => file.seek(SeekFrom::End(0)).map(drop),
            true => file.set_len(0),
            false => Ok(()),
        };
        match self.file.take() {
            // It stays where it is if it fails: this may be called where nothing can be removed any more.
            Some(mut file) => match prepare(&mut file) {
                Ok(()) => Ok(file),
                Err(error) => Err(FileFault::Io(error).of(self.field, &self.path)),
            },
            // Only this function takes the file, and it consumes the rest.
            None => Err(FileFault::Missing.of(self.field, &self.path)),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        let own = self.file.as_ref().filter(|_| self.created).and_then(|file| file.metadata().ok());
        let there = fs::symlink_metadata(&self.path).ok();
        // Somebody may have put another file in its place.
        if own.is_some_and(|own| there.is_some_and(|there| (own.dev(), own.ino()) == (there.dev(), there.ino()))) {
            // Nobody is left to tell, and the error that led here is about to be told.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The file, and whether this has created it.
fn open(path: &Path) -> Result<(File, bool), FileFault> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => return Ok((file, true)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Of a directory that may not be written to, an existing file still may be.
        Err(_) if path.exists() => {}
        Err(error) => return Err(FileFault::NotCreated(error.kind())),
    }
    let file_type = path.metadata().map_err(FileFault::reading)?.file_type();
    if file_type.is_fifo() {
        return open_pipe(path).map(|file| (file, false));
    }
    if !file_type.is_file() && !file_type.is_char_device() {
        let must = "a regular file, a character device or a pipe";
        return Err(FileFault::Kind { found: kind(file_type), must });
    }
    let file = OpenOptions::new().write(true).open(path).map_err(writing)?;
    Ok((file, false))
}

/// Opening a pipe for writing waits for a reader. The first, non-blocking attempt fails instead; while it is held, the pipe
/// has a reader and the second one does not wait.
fn open_pipe(path: &Path) -> Result<File, FileFault> {
    let probe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let _held = probe.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => FileFault::NoReader,
        _ => writing(error),
    })?;
    OpenOptions::new().write(true).open(path).map_err(writing)
}

fn writing(error: io::Error) -> FileFault {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FileFault::Unwritable,
        _ => FileFault::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_what_was_created_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output");
        let open = || OutputFile::open(Field::of("serial", "file"), &path).unwrap();
        drop(open());
        assert!(!path.exists());
        let output = open();
        fs::rename(&path, directory.path().join("away")).unwrap();
        fs::write(&path, "another").unwrap();
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    }

    #[test]
    fn what_is_there_stays_if_it_is_to() {
        for (append, expected) in [(false, "new"), (true, "old new")] {
            let path = tempfile::NamedTempFile::new().unwrap();
            fs::write(path.path(), "old ").unwrap();
            let mut output = OutputFile::open(Field::of("serial", "file"), path.path()).unwrap();
            if append {
                output.append();
            }
            // As the serial port has it: a handle that was there before.
            let mut writer = output.writer().unwrap();
            let _kept = output.commit().unwrap();
            writer.write_all(b"new").unwrap();
            assert_eq!(fs::read_to_string(path.path()).unwrap(), expected);
        }
    }
}
