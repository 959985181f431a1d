// SPDX-License-Identifier: Apache-2.0
//! Where the virtio console leads.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::options::OptionError;
use crate::devices::virtio::console::pty::Pty;
use crate::leave::Leave;
use crate::listener::{self, Bound};

const OPTION: &str = "--console";
/// An address has 108 bytes, the last of them zero.
const PATH_MAX: usize = 107;
const MUST: &str = "must be pty, socket=PATH, null or off; the terminal and files are the serial port's (--serial)";

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

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
#[error("{OPTION} {place}: {what}")]
pub struct ConsoleError {
    place: String,
    what: String,
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
        console.check_path().map_err(|must| OptionError::word(OPTION, text, &must))?;
        Ok(console)
    }

    /// What is wrong with one of a JSON file, as a path and what would be right.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_path().map_err(|must| format!("console.socket: {must}"))
    }

    fn check_path(&self) -> Result<(), String> {
        match self {
            Self::Socket { socket } if !(1..=PATH_MAX).contains(&socket.as_os_str().as_bytes().len()) => {
                Err(format!("must have 1 to {PATH_MAX} bytes"))
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

    /// Makes its other end; `leave` knows a socket from then on.
    pub(super) fn open(self, leave: &Leave) -> Result<Option<ConsoleConfig>, ConsoleError> {
        match self {
            Self::Off | Self::Null => Ok(None),
            Self::Pty { .. } => Pty::new().map(|pty| Some(ConsoleConfig::Pty(pty))).map_err(|error| ConsoleError {
                place: "pty".to_owned(),
                what: format!("cannot be made: {error}: must have /dev/ptmx and /dev/pts"),
            }),
            Self::Socket { socket } => {
                let failed = |what| ConsoleError { place: format!("socket={}", socket.display()), what };
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
        let parse = |text: &str| ConsoleOption::parse(text).map_err(|error| error.to_string());
        assert_eq!(parse("tty"), Err(format!("--console tty: {MUST}")));
        assert_eq!(parse("file=x"), Err(format!("--console file=x: {MUST}")));
        assert_eq!(parse("socket="), Err("--console socket=: must have 1 to 107 bytes".to_owned()));
        let long = "x".repeat(108);
        assert_eq!(parse(&format!("socket={long}")), Err(format!("--console socket={long}: must have 1 to 107 bytes")));
        assert!(parse(&format!("socket={}", &long[1..])).is_ok());
        let wrong = ConsoleOption::Socket { socket: long.into() };
        assert_eq!(wrong.check(), Err("console.socket: must have 1 to 107 bytes".to_owned()));
    }
}
