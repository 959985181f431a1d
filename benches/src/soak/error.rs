// SPDX-License-Identifier: Apache-2.0
//! Why a soak cannot be run.

use std::io;
use std::path::PathBuf;

/// A soak cannot begin or go on. A boot that fails, or whose host does, is counted and no error.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// No hosts, or too many.
    #[error("--hosts {0}: must be 1 to 16")]
    Hosts(u8),
    /// No temporary directory, or no path of this program.
    #[error("temporary directory")]
    Scratch(#[source] io::Error),
    /// Nowhere to keep what failed guests said.
    #[error("--keep {}: cannot be written to", path.display())]
    Keep {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Results cannot be told.
    #[error("standard output")]
    Output(#[source] io::Error),
    /// Signals cannot be handled.
    #[error("signals cannot be handled")]
    Signals(#[source] io::Error),
    /// Something to boot is missing.
    #[error(transparent)]
    Artifact(#[from] crate::artifact::ArtifactError),
    /// The initramfs.
    #[error(transparent)]
    Initramfs(#[from] crate::initramfs::InitramfsError),
    /// The door.
    #[error(transparent)]
    Door(#[from] crate::door::Error),
}
