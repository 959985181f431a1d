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
    /// The init or a module cannot be read.
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

/// The tiny guest's initramfs: its init reports the user-space marks and does what `flatboot.check=` asks, after it has loaded
/// what `artifact::guest_modules` has for its kernel.
pub fn guest() -> Result<Vec<u8>, InitramfsError> {
    let mut archive = archive(&artifact::own_binary("guest-init")?)?;
    if let Some(modules) = artifact::guest_modules() {
        archive.directory("modules", 0o755);
        for release in names(&modules)? {
            add_directory(&mut archive, &modules.join(&release), &format!("modules/{release}"))?;
        }
    }
    Ok(archive.finish())
}

/// The emulated host's initramfs.
pub fn host() -> Result<Vec<u8>, InitramfsError> {
    Ok(archive(&artifact::own_binary("host-init")?)?.finish())
}

/// Writes the tiny guest's initramfs to `out`: all of it or nothing.
pub fn write_guest(out: &Path) -> Result<(), InitramfsError> {
    let bytes = guest()?;
    whole::write(out, &bytes).map_err(|source| InitramfsError::Write { path: out.display().to_string(), source })
}

/// `/init`, the directories that it mounts on, and the console that the kernel opens for it.
fn archive(init: &Path) -> Result<Archive, InitramfsError> {
    let program = read(init)?;
    let mut archive = Archive::default();
    for directory in ["dev", "proc", "sys", "root"] {
        archive.directory(directory, 0o755);
    }
    archive.character_device("dev/console", 0o600, 5, 1);
    archive.file("init", 0o755, &program)?;
    Ok(archive)
}

/// A directory of files only, as `name`.
fn add_directory(archive: &mut Archive, from: &Path, name: &str) -> Result<(), InitramfsError> {
    archive.directory(name, 0o755);
    for file in names(from)? {
        archive.file(&format!("{name}/{file}"), 0o644, &read(&from.join(&file))?)?;
    }
    Ok(())
}

/// The names in a directory, in the same order each time.
fn names(directory: &Path) -> Result<Vec<String>, InitramfsError> {
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|source| cannot_read(directory, source))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>, InitramfsError> {
    fs::read(path).map_err(|source| cannot_read(path, source))
}

fn cannot_read(path: &Path, source: io::Error) -> InitramfsError {
    InitramfsError::Read { path: path.display().to_string(), source }
}
