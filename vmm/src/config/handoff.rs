// SPDX-License-Identifier: Apache-2.0
//! What the guest is told about its memory.

use super::file::{FileError, FileFault, InputFile};
use super::study::{HANDOFF_FILE, StudyConfig};
use crate::layout;

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

impl HandOff {
    /// What `study` leaves of it.
    pub(super) fn open(study: &StudyConfig) -> Result<Self, FileError> {
        let Some(path) = study.handoff_file.as_deref() else {
            return Ok(if study.handoff { Self::Planned } else { Self::Off });
        };
        let file = InputFile::open(HANDOFF_FILE, path)?;
        let (length, max) = (file.length(), layout::HANDOFF_MAX);
        if length > max {
            return Err(FileFault::TooLong { length, max }.of(HANDOFF_FILE, path));
        }
        Ok(Self::File(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_unless_it_is_switched_off() {
        let off = StudyConfig { handoff: false, ..StudyConfig::default() };
        assert!(matches!(HandOff::open(&StudyConfig::default()), Ok(HandOff::Planned)));
        assert!(matches!(HandOff::open(&off), Ok(HandOff::Off)));
    }

    #[test]
    fn a_file_has_content_and_room() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let study = StudyConfig { handoff_file: Some(file.path().to_owned()), ..StudyConfig::default() };
        let refused = || HandOff::open(&study).unwrap_err().to_string();
        let named = |fault: &str| format!("study.handoff_file={}: {fault}", file.path().display());
        assert_eq!(refused(), named("is empty: must not be"));
        file.as_file().set_len(layout::HANDOFF_MAX).unwrap();
        assert!(matches!(HandOff::open(&study), Ok(HandOff::File(_))));
        file.as_file().set_len(layout::HANDOFF_MAX + 1).unwrap();
        assert_eq!(refused(), named("has 262129 bytes: must be at most 262128"));
    }
}
