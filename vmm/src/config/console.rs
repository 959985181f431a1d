// SPDX-License-Identifier: Apache-2.0
//! Where the virtio console leads.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::options::OptionError;
use crate::devices::virtio::console::pty::Pty;
use crate::field::Field;
use crate::leave::Leave;
use crate::listener::{self, Bound};

const OPTION: Field = Field::section("console");
/// An address has 108 bytes, the last of them zero.
const PATH_MAX: usize = 107;
const MUST: &str = "must be pty, socket=PATH, null or off; the terminal and files are the serial port's";

/// Where it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", deny_unknown_fields)]
pub(super) enum ConsoleOption {
    /// There is no console.
    #[default]
    Off,
    /// The same: there is nothing that a console would be for.
    Null,
    /// To a pseudo terminal.
    Pty {
        /// Its path; only whoever looks at a VM that runs sees it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
    },
    /// To whoever connects to a UNIX socket.
    Socket {
        /// Its path.
        socket: PathBuf,
    },
}

/// A console whose other end is there.
#[derive(Debug)]
pub enum ConsoleConfig {
    /// A pseudo terminal.
    Pty(Pty),
    /// A socket, and its path.
    Socket(Bound, UnixListener, PathBuf),
}

impl ConsoleOption {
    /// Takes the text of `--console`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let console = match (text, text.strip_prefix("socket=")) {
            ("off", _) => Self::Off,
            ("null", _) => Self::Null,
            ("pty", _) => Self::Pty { file: None },
            (_, Some(path)) => Self::Socket { socket: path.into() },
            _ => return Err(OptionError::word(OPTION, text, MUST)),
        };
        console.check()?;
        Ok(console)
    }

    /// Whether its socket can have that path.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        match self {
            Self::Socket { socket } if !(1..=PATH_MAX).contains(&socket.as_os_str().as_bytes().len()) => {
                let must = format!("must have 1 to {PATH_MAX} bytes");
                Err(FieldError::of(OPTION.member("socket"), &socket.display(), &must))
            }
            _ => Ok(()),
        }
    }

    /// Its socket, if it has one.
    pub(super) fn socket(&self) -> Option<&Path> {
        if let Self::Socket { socket } = self { Some(socket) } else { None }
    }

    /// Whether there is a device.
    pub(super) const fn is_there(&self) -> bool {
        matches!(self, Self::Pty { .. } | Self::Socket { .. })
    }

    /// Says where its pseudo terminal is, if it has one.
    pub(super) fn locate(&mut self, path: &Path) {
        if let Self::Pty { file } = self {
            *file = Some(path.to_owned());
        }
    }

    /// Makes its other end; `leave` knows a socket from then on. What this host lacks for it is an error.
    pub(super) fn open(self, leave: &Leave) -> Result<Option<ConsoleConfig>, FieldError> {
        match self {
            Self::Off | Self::Null => Ok(None),
            Self::Pty { .. } => Pty::new().map(|pty| Some(ConsoleConfig::Pty(pty))).map_err(|error| {
                let must = format!("cannot be made: {error}: must have /dev/ptmx and /dev/pts");
                FieldError::of(OPTION.member("mode"), &"pty", &must)
            }),
            Self::Socket { socket } => {
                let failed = |what: String| FieldError::of(OPTION.member("socket"), &socket.display(), &what);
                let mut making = leave.making();
                let (bound, listener) = listener::bind(socket.clone()).map_err(failed)?;
                making.vm.push(Box::new(bound.remover()));
                Ok(Some(ConsoleConfig::Socket(bound, listener, socket)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    #[test]
    fn words_and_json_are_the_same() {
        for (text, json) in [
            ("off", r#"{"mode": "Off"}"#),
            ("null", r#"{"mode": "Null"}"#),
            ("pty", r#"{"mode": "Pty"}"#),
            ("socket=/run/vm", r#"{"mode": "Socket", "socket": "/run/vm"}"#),
        ] {
            let console: ConsoleOption = serde_json::from_str(json).unwrap();
            assert_eq!(ConsoleOption::parse(text), Ok(console), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |text: &str| ConsoleOption::parse(text).map_err(|error| in_options(|| error.to_string()));
        assert_eq!(parse("tty"), Err(format!("--console tty: {MUST}")));
        assert_eq!(parse("file=x"), Err(format!("--console file=x: {MUST}")));
        assert_eq!(parse("socket="), Err("--console socket=: must have 1 to 107 bytes".to_owned()));
        let long = "x".repeat(108);
        assert_eq!(parse(&format!("socket={long}")), Err(format!("--console socket={long}: must have 1 to 107 bytes")));
        assert!(parse(&format!("socket={}", &long[1..])).is_ok());
        let wrong = ConsoleOption::Socket { socket: long.into() };
        let must = "must have 1 to 107 bytes";
        assert_eq!(wrong.check().unwrap_err().to_string(), format!("console.socket={}: {must}", "x".repeat(108)));
    }
}
