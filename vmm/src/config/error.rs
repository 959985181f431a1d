// SPDX-License-Identifier: Apache-2.0
//! Why a configuration is refused.

use super::cmdline::CmdlineError;
use super::file::FileError;
use super::options::OptionError;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An option's text or value.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The kernel's command line.
    #[error(transparent)]
    Cmdline(#[from] CmdlineError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ConfigError {
    /// Whether the command line alone is wrong, whatever files there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::File(_))
    }
}
