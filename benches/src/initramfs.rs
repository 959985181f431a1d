// SPDX-License-Identifier: Apache-2.0
//! The two initial file systems: the tiny guest's and the emulated host's. Each is one static program.

use std::path::Path;
use std::{fs, io};

use crate::artifact::{self, ArtifactError};
use crate::cpio::{Archive, TooLarge};
use crate::whole;

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
    whole::write(out, &bytes).map_err(|source| InitramfsError::Write { path: out.display().to_string(), source })
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
