// SPDX-License-Identifier: Apache-2.0
//! A soak: boots of random VMs that end in random ways, hosts side by side, until time is up.
//!
//! A seed decides one boot entirely ([`Plan`]), so a line with the seed is all that it takes to see a failure again.
//! A plan becomes an [`Order`] for the attendant ([`attend`]), which runs beside the VMM in the same host, does what the
//! plan says and tells what it has seen ([`Seen`]); what of that is wrong, [`judge`] says.

mod attend;
mod dice;
mod draw;
mod end;
mod engine;
mod http;
mod judge;
mod left;
mod log;
mod order;
mod plan;
mod splat;
mod tally;
mod words;

use std::io;
use std::path::PathBuf;

pub use attend::attend;
pub use end::End;
pub use engine::{Request, run};
pub use judge::judge;
pub use order::{Order, Seen, Step};
pub use plan::{Api, Disk, Plan, Rest, Serial};
pub use tally::Tally;

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
