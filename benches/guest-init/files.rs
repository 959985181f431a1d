// SPDX-License-Identifier: Apache-2.0
//! Reading the kernel's small text files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// No file of interest is as long, that of interrupts of a thousand processors neither.
const LIMIT: u64 = 16 << 20;

/// A whole text file, with an error that names it.
pub(crate) fn text(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    let read = || -> io::Result<String> {
        let mut bytes = Vec::new();
        let length = File::open(path)?.take(LIMIT).read_to_end(&mut bytes)?;
        if length as u64 == LIMIT {
            return Err(io::Error::other("is longer than 16 MiB"));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().map_err(|error| format!("{}: {error}", path.display()))
}

/// A file that holds one decimal number.
pub(crate) fn number(path: impl AsRef<Path>) -> Result<u64, String> {
    let content = text(&path)?;
    let trimmed = content.trim();
    trimmed.parse().map_err(|_| format!("{}: {trimmed:?} is no number", path.as_ref().display()))
}

/// Names in a directory, sorted; none if there is no directory.
pub(crate) fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Those names in a directory that are `prefix` and a number.
pub(crate) fn numbered(directory: &str, prefix: &str) -> Vec<String> {
    let is_numbered = |name: &String| name.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u64>().is_ok());
    names(directory).into_iter().filter(is_numbered).collect()
}
