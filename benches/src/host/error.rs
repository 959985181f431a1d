// SPDX-License-Identifier: Apache-2.0
//! Why an emulated host fails.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::console::ConsoleEnd;
use super::options::{MemorySize, OptionsError};
use crate::artifact::ArtifactError;
use crate::initramfs::InitramfsError;

/// The emulated host cannot start, or ended before the program did.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// An option is wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The kernel is missing.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The initramfs cannot be made.
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    /// The directory for sockets and images cannot be made.
    #[error("{}: cannot make the emulated host's directory there", path.display())]
    Directory {
        /// The parent directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no memory for it.
    #[error("the emulated host's memory: cannot make a file of {size} for it")]
    Memory {
        /// Its size.
        size: MemorySize,
        /// Why.
        source: io::Error,
    },
    /// QEMU cannot be executed.
    #[error("qemu-system-x86_64: cannot start it (Debian: apt-get install qemu-system-x86)")]
    NoQemu(#[source] io::Error),
    /// QEMU ended, by itself or killed, before the program did.
    #[error("the emulated host ended before the program did: {0}")]
    Ended(ConsoleEnd),
    /// The init inside did not answer in time.
    #[error("the emulated host did not start within {} s: {end}", limit.as_secs())]
    StartTimeout {
        /// The limit.
        limit: Duration,
        /// What its console says.
        end: ConsoleEnd,
    },
    /// The program did not end in time.
    #[error("time ran out: the program still ran after {} s; it and the emulated host were ended", limit.as_secs_f32())]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// A caller ended the host.
    #[error("the emulated host was ended by signal {0}")]
    Killed(i32),
    /// The init inside reports an error.
    #[error("the emulated host: {0}")]
    Init(String),
    /// The init is of another build.
    #[error(
        "host-init speaks version {theirs}, flatboot-bench version {}: build both together",
        crate::protocol::VERSION
    )]
    Version {
        /// The init's version.
        theirs: u32,
    },
    /// The connection broke or carried nonsense.
    #[error("the connection to the emulated host's init failed")]
    Connection(#[source] io::Error),
    /// The caller's terminal refuses to be set up, or is none.
    #[error("the terminal of standard input cannot be used")]
    Terminal(#[source] io::Error),
}
