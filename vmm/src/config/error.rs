// SPDX-License-Identifier: Apache-2.0
//! Why a configuration is refused.

use super::cmdline::CmdlineError;
use super::console::ConsoleError;
use super::file::FileError;
use super::net::NetError;
use super::options::OptionError;
use super::vsock::VsockError;

/// What is wrong with a configuration written as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub struct JsonError {
    /// The file.
    pub path: String,
    /// Which field, and what.
    pub what: String,
}

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
    /// A network interface.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A socket.
    #[error(transparent)]
    Vsock(#[from] VsockError),
    /// What a console leads to.
    #[error(transparent)]
    Console(#[from] ConsoleError),
    /// The text of a configuration file.
    #[error(transparent)]
    Json(#[from] JsonError),
}

impl ConfigError {
    /// Whether the command line alone is wrong, whatever files there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::File(_) | Self::Net(_) | Self::Vsock(_) | Self::Console(_) | Self::Json(_))
    }
}
