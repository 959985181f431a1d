// SPDX-License-Identifier: Apache-2.0
//! What the serial port is connected to.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::file::FileError;
use super::options::OptionError;
use super::output::OutputFile;
use crate::field::Field;

const OPTION: Field = Field::section("serial");
pub(super) const FILE: Field = OPTION.member("file");

/// What the serial port is connected to.
#[derive(Debug)]
pub enum SerialConfig {
    /// The terminal, or whatever standard input and output are.
    Tty,
    /// A file that takes what the guest writes.
    File(OutputFile),
    /// Nothing: the port is there, what the guest writes is dropped.
    Null,
    /// There is no port.
    Off,
}

/// The same, with the file still to be opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", content = "file")]
pub(super) enum SerialOption {
    #[default]
    Tty,
    File(PathBuf),
    Null,
    Off,
}

impl SerialOption {
    /// Takes the text of `--serial`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        match text {
            "tty" => Ok(Self::Tty),
            "null" => Ok(Self::Null),
            "off" => Ok(Self::Off),
            _ => match text.strip_prefix("file=") {
                Some(path) if !path.is_empty() => Ok(Self::File(path.into())),
                _ => Err(OptionError::word(OPTION, text, "must be tty, file=FILE, null or off")),
            },
        }
    }

    /// Whether a kernel's messages go anywhere through it.
    pub(super) fn is_console(&self) -> bool {
        matches!(self, Self::Tty | Self::File(_))
    }

    pub(super) fn open(self) -> Result<SerialConfig, FileError> {
        Ok(match self {
            Self::Tty => SerialConfig::Tty,
            Self::File(path) => SerialConfig::File(OutputFile::open(FILE, &path)?),
            Self::Null => SerialConfig::Null,
            Self::Off => SerialConfig::Off,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_serial() {
        assert_eq!(SerialOption::parse("tty"), Ok(SerialOption::Tty));
        assert_eq!(SerialOption::parse("file=a=b,c"), Ok(SerialOption::File("a=b,c".into())));
        for (text, shown) in [("", "\"\""), ("file", "file"), ("file=", "file="), ("pty", "pty"), ("TTY", "TTY")] {
            let error = SerialOption::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("serial {shown}: must be tty, file=FILE, null or off"));
        }
    }
}
