// SPDX-License-Identifier: Apache-2.0
//! Why a sweep cannot be run.

use std::io;
use std::path::PathBuf;

use super::matrix::Memory;
use super::switches::{FULL_SET, Switch};
use super::vmm::Kind;

/// A sweep cannot begin or go on. A boot that fails is a result and not an error.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Too few or too many rounds.
    #[error("--runs {0}: must be 1 to 1000")]
    Runs(u32),
    /// No time.
    #[error("--timeout 0: must be at least 1 second")]
    Timeout,
    /// There are results already.
    #[error("--out {}: exists; --resume goes on with it, another --out starts anew", .0.display())]
    Exists(PathBuf),
    /// A directory is no file.
    #[error("--out {}: is a directory; name a file", .0.display())]
    Directory(PathBuf),
    /// There are no results.
    #[error("--out {}: not there; without --resume a new sweep begins", .0.display())]
    NothingToResume(PathBuf),
    /// The results are of another sweep.
    #[error("{}: cannot be resumed: {what} differ: {was} in the file, {is} now", path.display())]
    Resume {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// In the file.
        was: String,
        /// Now.
        is: String,
    },
    /// A VMM's binary cannot be used.
    #[error("--vmm {kind}={}: {why}", path.display())]
    Vmm {
        /// Which VMM.
        kind: Kind,
        /// Its binary.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A switch with nothing to turn off.
    #[error(
        "--without {}: turns nothing off here: switches are of --mode {FULL_SET}{}",
        .0.name,
        if .0.is_of_flatboot() { " with --vmm flatboot" } else { "" }
    )]
    Idle(&'static Switch),
    /// A VMM without the devices of workloads.
    #[error("--vmm {0}: --work is for flatboot and qemu")]
    Idler(Kind),
    /// QEMU is not installed.
    #[error("--vmm qemu: no qemu-system-x86_64 in PATH; install it or name it: qemu=PATH")]
    NoQemu,
    /// The host has no addresses for so much memory.
    #[error("memory {memory}: the host's physical addresses have {bits} bits, 4 GiB of which are for devices")]
    TooLarge {
        /// The size.
        memory: Memory,
        /// Width.
        bits: u32,
    },
    /// An image cannot be read.
    #[error("{}: cannot be read", path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No temporary directory.
    #[error("temporary directory")]
    Scratch(#[source] io::Error),
    /// `flatboot map` made no table.
    #[error("flatboot map: {0}")]
    Table(String),
    /// The observer failed.
    #[error("observer: {0}")]
    Observer(String),
    /// The firmware.
    #[error(transparent)]
    Firmware(#[from] crate::artifact::ArtifactError),
    /// The initramfs.
    #[error(transparent)]
    Initramfs(#[from] crate::initramfs::InitramfsError),
    /// The door.
    #[error(transparent)]
    Door(#[from] crate::door::Error),
    /// The results file.
    #[error(transparent)]
    Results(#[from] crate::results::ResultsError),
}
