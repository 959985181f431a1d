// SPDX-License-Identifier: Apache-2.0
//! Files that are replaced atomically: they are there whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::{NamedTempFile, PersistError};

/// Makes `path` hold `bytes`, readable by all: a crash or a power cut leaves the old file or the new one.
/// The file is locked for as long as what is given back lives: whoever had the lock of the old one has that of the new one, too.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    put(path, bytes, |file| file.persist(path))
}

/// The same, but nothing may be there before: what is there stays.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    put(path, bytes, |file| file.persist_noclobber(path))
}

/// Locks the file at `path` for as long as what is given back lives; [`ErrorKind::WouldBlock`] if another has the lock.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    loop {
        let file = File::options().read(true).write(true).open(path)?;
        lock_file(&file)?;
        // Whoever had the lock may have put another file there before this one could be locked.
        let (locked, there) = (file.metadata()?, fs::metadata(path)?);
        if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
    }
}

/// A file system without locks has none to mind.
fn lock_file(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// A file with `bytes` that `place` gives its name; it is locked before it has it.
fn put(path: &Path, bytes: &[u8], place: impl FnOnce(NamedTempFile) -> Result<File, PersistError>) -> io::Result<File> {
    let directory = directory_of(path);
    let mut file = NamedTempFile::new_in(directory)?;
    lock_file(file.as_file())?;
    file.write_all(bytes)?;
    // Temporary files are the user's alone.
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    let file = place(file).map_err(|error| error.error)?;
    // The name is on disk when its directory is; a file system that cannot say so has no such promise to keep.
    match File::open(directory)?.sync_all() {
        Err(error) if error.kind() != ErrorKind::InvalidInput => Err(error),
        _ => Ok(file),
    }
}

/// Whether a file can be made where `path` is to be.
pub(crate) fn can_write(path: &Path) -> io::Result<()> {
    tempfile::tempfile_in(directory_of(path)).map(drop)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(write(&directory.path().join("none/file"), b"x").is_err());
        assert!(can_write(&directory.path().join("none/file")).is_err() && can_write(&path).is_ok());
        // A directory in the file's place: the new file does not stay behind.
        fs::create_dir(directory.path().join("taken")).unwrap();
        assert!(write(&directory.path().join("taken"), b"x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn one_at_a_time_has_the_lock_whatever_file_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let first = write_new(&path, b"1").unwrap();
        assert_eq!(write_new(&path, b"2").unwrap_err().kind(), ErrorKind::AlreadyExists);
        let taken = || lock(&path).map(drop).map_err(|error| error.kind());
        assert_eq!(taken(), Err(ErrorKind::WouldBlock));
        let second = write(&path, b"3").unwrap();
        drop(first);
        assert_eq!(taken(), Err(ErrorKind::WouldBlock));
        drop(second);
        assert_eq!((taken(), fs::read(&path).unwrap()), (Ok(()), b"3".to_vec()));
    }
}
