// SPDX-License-Identifier: Apache-2.0
//! Why a configuration is refused.

use super::cmdline::CmdlineError;
use super::field::FieldError;
use super::file::{FileError, FileFault};
use super::limits::MAX_DEVICES;
use super::options::OptionError;
use crate::field::Field;

const DISKS: Field = Field::section("disks");
const NET: Field = Field::section("net");
const VSOCK: Field = Field::section("vsock");
const CONSOLE: Field = Field::section("console");
const BALLOON: Field = Field::section("balloon");

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text of an option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A value.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The kernel's command line.
    #[error(transparent)]
    Cmdline(#[from] CmdlineError),
    /// More devices than there is room for.
    #[error("{DISKS}, {NET}, {VSOCK}, {CONSOLE} and {BALLOON}: {0} given: must be at most {MAX_DEVICES}")]
    TooMany(usize),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The other end of a device, or what it needs of this host.
    #[error(transparent)]
    Host(FieldError),
}

impl ConfigError {
    /// Whether the command line alone is wrong, whatever files and hosts there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::File(_) | Self::Host(_))
    }
}

/// Why a file has no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileFault),
    /// What is in it: which field, and what is wrong.
    #[error("{0}")]
    Json(String),
}
