// SPDX-License-Identifier: Apache-2.0
//! What the guest is told about its memory.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::file::{FileError, FileFault, InputFile};
use super::options::OptionError;
use crate::field::Field;
use crate::layout;

/// Where it is in a configuration.
pub const OPTION: Field = Field::section("handoff");

/// What the guest is told about its memory beside the e820 map.
#[derive(Debug)]
pub enum HandOff {
    /// The table that the memory plan gives.
    Planned,
    /// Nothing: there is no table.
    Off,
    /// The bytes of a file, at most [`layout::HANDOFF_MAX`], in place of the table; nobody has checked them.
    File(InputFile),
}

/// The same, with the file still to be opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HandOffOption {
    #[default]
    Planned,
    Off,
    File(PathBuf),
}

impl HandOffOption {
    /// Takes the text of `--handoff`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        match text {
            "planned" => Ok(Self::Planned),
            "off" => Ok(Self::Off),
            _ => match text.strip_prefix("file=") {
                Some(path) if !path.is_empty() => Ok(Self::File(path.into())),
                _ => Err(OptionError::word(OPTION, text, "must be planned, off or file=FILE")),
            },
        }
    }

    pub(super) fn open(self) -> Result<HandOff, FileError> {
        Ok(match self {
            Self::Planned => HandOff::Planned,
            Self::Off => HandOff::Off,
            Self::File(path) => {
                let file = InputFile::open(OPTION, &path)?;
                let (length, max) = (file.length(), layout::HANDOFF_MAX);
                if length > max {
                    return Err(FileFault::TooLong { length, max }.of(OPTION, &path));
                }
                HandOff::File(file)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_handoff() {
        assert_eq!(HandOffOption::parse("planned"), Ok(HandOffOption::Planned));
        assert_eq!(HandOffOption::parse("off"), Ok(HandOffOption::Off));
        assert_eq!(HandOffOption::parse("file=a=b"), Ok(HandOffOption::File("a=b".into())));
        for (text, shown) in
            [("", "\"\""), ("on", "on"), ("file", "file"), ("file=", "file="), ("table.bin", "table.bin")]
        {
            let error = HandOffOption::parse(text).unwrap_err().to_string();
            assert_eq!(error, format!("handoff {shown}: must be planned, off or file=FILE"));
        }
    }

    #[test]
    fn a_file_has_content_and_room() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || HandOffOption::File(file.path().to_owned()).open();
        let refused = || open().unwrap_err().to_string();
        let named = |fault: &str| format!("handoff={}: {fault}", file.path().display());
        assert_eq!(refused(), named("is empty: must not be"));
        file.as_file().set_len(layout::HANDOFF_MAX).unwrap();
        assert!(matches!(open(), Ok(HandOff::File(_))));
        file.as_file().set_len(layout::HANDOFF_MAX + 1).unwrap();
        assert_eq!(refused(), named("has 262129 bytes: must be at most 262128"));
    }
}
