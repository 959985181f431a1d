// SPDX-License-Identifier: Apache-2.0
//! What a disk's file holds: the disk itself, byte for byte, or an image of it in a format that flatboot does not know.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// What the owner of a disk says of its format, in Cloud Hypervisor's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ImageType {
    /// Nothing: a file that begins like one of another format is refused.
    #[default]
    Unknown,
    /// It is the disk, whatever it begins like: a guest may write there what it wants.
    Raw,
    FixedVhd,
    Qcow2,
    Vhdx,
}

impl ImageType {
    /// Its names on the command line.
    const WORDS: [(&'static str, Self); 5] = [
        ("unknown", Self::Unknown),
        ("raw", Self::Raw),
        ("fixedvhd", Self::FixedVhd),
        ("qcow2", Self::Qcow2),
        ("vhdx", Self::Vhdx),
    ];

    pub(super) const WORD: &'static str = "must be raw or unknown";
    /// What is said of a format that flatboot does not have.
    pub(super) const CONVERT: &'static str = "must be a raw disk, which \"qemu-img convert -O raw\" makes of an image";

    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let found = Self::WORDS.into_iter().find(|(word, _)| *word == text);
        found.map(|(_, found)| found).ok_or(Self::WORD)
    }

    /// Its name in JSON and, in small letters, on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Raw => "Raw",
            Self::FixedVhd => "FixedVhd",
            Self::Qcow2 => "Qcow2",
            Self::Vhdx => "Vhdx",
        }
    }

    /// Whether flatboot can use such a file.
    pub(super) const fn is_known(self) -> bool {
        matches!(self, Self::Unknown | Self::Raw)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How files of other formats begin: where, with what, and what they are. A disk's first sector has a partition table there, or
/// whatever its guest has written.
const FORMATS: [(usize, &[u8], &str); 6] = [
    (0, b"QFI\xfb", "qcow2"),
    (0, b"KDMV", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0, b"vhdxfile", "VHDX"),
    // A dynamic one has a copy of its footer in front.
    (0, b"conectix", "VHD"),
    (0x40, b"\x7f\x10\xda\xbe", "VDI"),
];
/// Enough of a file to know it.
const START: usize = 512;

/// The format that `file` begins like.
pub(super) fn format(file: &File) -> io::Result<Option<&'static str>> {
    let mut start = [0; START];
    let mut length = 0;
    while let Some(rest) = start.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let is = |(at, magic, _): &&(usize, &[u8], &str)| start.get(*at..).is_some_and(|there| there.starts_with(magic));
    Ok(FORMATS.iter().find(is).map(|(_, _, name)| *name))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn formats_are_known_by_how_they_begin() {
        for (at, magic, name) in FORMATS {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[&vec![0; at], magic].concat()).unwrap();
            assert_eq!(format(&file).unwrap(), Some(name));
            // Not elsewhere, and not half of it.
            let mut other = tempfile::tempfile().unwrap();
            other.write_all(&[&vec![0; at + 1], magic, &[0; 1024]].concat()).unwrap();
            let half = tempfile::tempfile().unwrap();
            half.write_all_at(&magic[..magic.len() - 1], at as u64).unwrap();
            assert_eq!((format(&other).unwrap(), format(&half).unwrap()), (None, None), "{name}");
        }
    }

    #[test]
    fn words_and_json_name_the_same() {
        for (word, value) in ImageType::WORDS {
            assert_eq!(ImageType::parse(word), Ok(value));
            assert_eq!(value.name().to_lowercase(), word);
            assert_eq!(serde_json::to_value(value).unwrap(), value.name());
        }
        assert_eq!(ImageType::parse("Raw"), Err(ImageType::WORD));
    }
}
