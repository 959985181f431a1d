// SPDX-License-Identifier: Apache-2.0
//! Where the virtio console leads.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::field::FieldError;
use super::options::OptionError;
use super::output::OutputFile;
use crate::devices::virtio::console::pty::Pty;
use crate::field::Field;
use crate::leave::Leave;
use crate::listener::{self, Bound};

const OPTION: Field = Field::section("console");
pub(super) const FILE: Field = OPTION.member("file");
/// An address has 108 bytes, the last of them zero.
const PATH_MAX: usize = 107;
const MUST: &str = "must be tty, pty, file=FILE, socket=PATH, null or off";

/// Where it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", deny_unknown_fields)]
pub(super) enum ConsoleOption {
    /// There is no console.
    #[default]
    Off,
    /// The same: there is nothing that a console would be for.
    Null,
    /// To the terminal, or whatever standard input and output are.
    Tty,
    /// To a file.
    File {
        /// Its path.
        file: PathBuf,
    },
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
    /// The terminal.
    Tty,
    /// A file that takes what the guest writes.
    File(OutputFile),
    /// A pseudo terminal.
    Pty(Pty),
    /// A socket, and its path.
    Socket(Bound, UnixListener, PathBuf),
}

impl ConsoleOption {
    /// Takes the text of `--console`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let (word, path) = text.split_once('=').map_or((text, None), |(word, path)| (word, Some(path)));
        let console = match (word, path) {
            ("off", None) => Self::Off,
            ("null", None) => Self::Null,
            ("tty", None) => Self::Tty,
            ("pty", None) => Self::Pty { file: None },
            ("file", Some(path)) if !path.is_empty() => Self::File { file: path.into() },
            ("socket", Some(path)) => Self::Socket { socket: path.into() },
            _ => return Err(OptionError::word(OPTION, text, MUST)),
        };
        console.check()?;
        Ok(console)
    }

    /// Whether its socket can have that path.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        let Self::Socket { socket } = self else { return Ok(()) };
        let wrong = |must: String| FieldError::of(OPTION.member("socket"), &socket.display(), &must);
        listener::check(socket, PATH_MAX).map_err(wrong)
    }

    /// Its socket, if it has one.
    pub(super) fn socket(&self) -> Option<&Path> {
        if let Self::Socket { socket } = self { Some(socket) } else { None }
    }

    /// Whether there is a device.
    pub(super) const fn is_there(&self) -> bool {
        !matches!(self, Self::Off | Self::Null)
    }

    /// Whether it is a file.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Whether a kernel's messages have somewhere to go through it that is there from the beginning.
    pub(super) const fn is_console(&self) -> bool {
        matches!(self, Self::Tty | Self::File { .. })
    }

    /// Whether the terminal is left for it, which `taken` says that the serial port has.
    pub(super) fn check_terminal(&self, taken: bool) -> Result<(), FieldError> {
        if !taken || *self != Self::Tty {
            return Ok(());
        }
        let must = "must be with a serial port that is null, off or a file: the serial port has the terminal";
        Err(FieldError::of(OPTION.member("mode"), &"tty", must))
    }

    /// Says where its pseudo terminal is, if it has one.
    pub(super) fn locate(&mut self, path: &Path) {
        if let Self::Pty { file } = self {
            *file = Some(path.to_owned());
        }
    }

    /// Looks at its file as it is now; one that is not there is created, and removed again.
    pub(super) fn look_again(self) -> Result<(), ConfigError> {
        let Self::File { file } = self else { return Ok(()) };
        Ok(OutputFile::open(FILE, &file).map(drop)?)
    }

    /// Makes its other end; `leave` knows a socket from then on. What this host lacks for it is an error.
    pub(super) fn open(self, leave: &Leave) -> Result<Option<ConsoleConfig>, ConfigError> {
        match self {
            Self::Off | Self::Null => Ok(None),
            Self::Tty => Ok(Some(ConsoleConfig::Tty)),
            Self::File { file } => Ok(Some(ConsoleConfig::File(OutputFile::open(FILE, &file)?))),
            Self::Pty { .. } => Pty::new().map(|pty| Some(ConsoleConfig::Pty(pty))).map_err(|error| {
                let must = format!("cannot be made: {error}: must have /dev/ptmx and /dev/pts");
                ConfigError::Host(FieldError::of(OPTION.member("mode"), &"pty", &must))
            }),
            Self::Socket { socket } => {
                let failed =
                    |what: String| ConfigError::Host(FieldError::of(OPTION.member("socket"), &socket.display(), &what));
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
            ("tty", r#"{"mode": "Tty"}"#),
            ("pty", r#"{"mode": "Pty"}"#),
            ("file=a=b", r#"{"mode": "File", "file": "a=b"}"#),
            ("socket=/run/vm", r#"{"mode": "Socket", "socket": "/run/vm"}"#),
        ] {
            let console: ConsoleOption = serde_json::from_str(json).unwrap();
            assert_eq!(ConsoleOption::parse(text), Ok(console), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |text: &str| ConsoleOption::parse(text).map_err(|error| in_options(|| error.to_string()));
        for text in ["TTY", "tty=", "tty=x", "file", "file=", "pty=/dev/pts/1", "socket"] {
            assert_eq!(parse(text), Err(format!("--console {text}: {MUST}")));
        }
        assert_eq!(parse("socket="), Err("--console socket=: must have 1 to 107 bytes".to_owned()));
        let long = "x".repeat(108);
        assert_eq!(parse(&format!("socket={long}")), Err(format!("--console socket={long}: must have 1 to 107 bytes")));
        assert!(parse(&format!("socket={}", &long[1..])).is_ok());
        let wrong = ConsoleOption::Socket { socket: long.into() };
        let must = "must have 1 to 107 bytes";
        assert_eq!(wrong.check().unwrap_err().to_string(), format!("console.socket={}: {must}", "x".repeat(108)));
        let zero = ConsoleOption::Socket { socket: "a\0b".into() };
        assert_eq!(zero.check().unwrap_err().to_string(), "console.socket=a\0b: has a zero byte: must have none");
    }
}
