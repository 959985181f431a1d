// SPDX-License-Identifier: Apache-2.0
//! The report's file.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::atomic_file;
use crate::results::ResultsError;

use super::chart::DrawError;

/// How every report begins.
pub(super) const HEAD: &str = "<!DOCTYPE html><!-- flatboot-bench report -->";

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The report's size.
    pub bytes: usize,
    /// How many hosts the files come from; each has a section of its own.
    pub hosts: usize,
}

/// No report was written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file that cannot be drawn.
    #[error(transparent)]
    Results(ResultsError),
    /// Something else has the report's name.
    #[error("{}: is there and is no report: name another file or remove it", .0.display())]
    Occupied(PathBuf),
    /// A picture that cannot be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// It cannot be written.
    #[error("{}: cannot be written", path.display())]
    Write {
        /// The report.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ReportError {
    /// 2 for what the user named wrongly, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Results(_) | Self::Occupied(_) => 2,
            Self::Draw(_) | Self::Write { .. } => 1,
        }
    }
}

/// Measuring takes hours: a results file that is named in the report's place must not be lost.
pub(super) fn refuse_other_files(path: &Path) -> Result<(), ReportError> {
    let failed = |source| ReportError::Write { path: path.to_path_buf(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.is_file() => return Err(ReportError::Occupied(path.to_path_buf())),
        Ok(_) => {}
    }
    let mut head = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(HEAD.len() as u64).read_to_end(&mut head).map_err(failed)?;
    if head == HEAD.as_bytes() { Ok(()) } else { Err(ReportError::Occupied(path.to_path_buf())) }
}

/// Writes `path` whole or not at all.
pub(super) fn write(path: &Path, html: &str) -> Result<(), ReportError> {
    atomic_file::write(path, html.as_bytes()).map_err(|source| ReportError::Write { path: path.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, sweep, variant};
    use super::*;
    use crate::results;

    #[test]
    fn only_reports_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("results.json");
        results::save(&sweep(vec![variant("flatboot", "serial", GIB)], 2, |_, _| 5), &file).unwrap();
        let before = fs::read(&file).unwrap();

        let report = directory.path().join("report.html");
        let first = super::super::write(std::slice::from_ref(&file), &report).unwrap();
        assert_eq!(fs::metadata(&report).unwrap().len(), first.bytes as u64);
        assert_eq!(super::super::write(std::slice::from_ref(&file), &report).unwrap(), first);

        for occupied in [file.as_path(), directory.path()] {
            let error = super::super::write(std::slice::from_ref(&file), occupied).unwrap_err();
            assert!(matches!(error, ReportError::Occupied(_)), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
        assert_eq!(fs::read(&file).unwrap(), before);
    }

    #[test]
    fn bad_input_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (file, report) = (directory.path().join("results.json"), directory.path().join("report.html"));
        fs::write(&file, "{\"format\": \"flatboot-bench results\", \"ver").unwrap();
        for missing in [file.clone(), directory.path().join("none.json")] {
            let error = super::super::write(&[missing], &report).unwrap_err();
            assert_eq!((error.exit_code(), error.to_string().lines().count()), (2, 1), "{error}");
        }
        let nowhere = directory.path().join("none/report.html");
        fs::remove_file(&file).unwrap();
        results::save(&sweep(vec![variant("flatboot", "serial", GIB)], 2, |_, _| 5), &file).unwrap();
        let error = super::super::write(&[file], &nowhere).unwrap_err();
        assert_eq!(error.exit_code(), 1, "{error}");
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["results.json"]);
    }
}
