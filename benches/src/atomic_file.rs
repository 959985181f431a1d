// SPDX-License-Identifier: Apache-2.0
//! Files that are replaced atomically: they are there whole or not at all.

use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes `path` hold `bytes`, readable by all: a crash or a power cut leaves the old file or the new one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = directory_of(path);
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    // Temporary files are the user's alone.
    file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The name is on disk when its directory is; a file system that cannot say so has no such promise to keep.
    match File::open(directory)?.sync_all() {
        Err(error) if error.kind() != ErrorKind::InvalidInput => Err(error),
        _ => Ok(()),
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
    use std::fs;

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
}
