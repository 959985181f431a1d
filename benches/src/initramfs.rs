// SPDX-License-Identifier: Apache-2.0
//! The two initial file systems: the tiny guest's and the emulated host's. Each is one static program.

use std::path::Path;
use std::{fs, io};

use crate::artifact::{self, ArtifactError};
use crate::cpio::{Archive, TooLarge};

/// An initramfs cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum InitramfsError {
    /// The init is missing.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The init cannot be read.
    #[error("{path}: cannot read it")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The init does not fit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The archive cannot be written.
    #[error("{path}: cannot write it")]
    Write {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// The tiny guest's initramfs: its init reports the user-space marks and does what `flatboot.check=` asks.
pub fn guest() -> Result<Vec<u8>, InitramfsError> {
    archive(&artifact::own_binary("guest-init")?)
}

/// The emulated host's initramfs.
pub fn host() -> Result<Vec<u8>, InitramfsError> {
    archive(&artifact::own_binary("host-init")?)
}

/// Writes the tiny guest's initramfs to `out`: all of it or nothing.
pub fn write_guest(out: &Path) -> Result<(), InitramfsError> {
    let bytes = guest()?;
    let failed = |source| InitramfsError::Write { path: out.display().to_string(), source };
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    io::Write::write_all(&mut file, &bytes).map_err(failed)?;
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).map_err(failed)?;
    file.persist(out).map_err(|e| failed(e.error))?;
    Ok(())
}

/// `/init`, the directories that it mounts on, and the console that the kernel opens for it.
fn archive(init: &Path) -> Result<Vec<u8>, InitramfsError> {
    let program = fs::read(init).map_err(|source| InitramfsError::Read { path: init.display().to_string(), source })?;
    let mut archive = Archive::default();
    for directory in ["dev", "proc", "sys", "root"] {
        archive.directory(directory, 0o755);
    }
    archive.character_device("dev/console", 0o600, 5, 1);
    archive.file("init", 0o755, &program)?;
    Ok(archive.finish())
}
