// SPDX-License-Identifier: Apache-2.0
//! The report's file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, anyhow};

use crate::atomic_file;

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
    /// What the user named is wrong.
    #[error("{0:#}")]
    Named(anyhow::Error),
    /// It cannot be drawn or written.
    #[error(transparent)]
    Made(#[from] anyhow::Error),
}

impl ReportError {
    /// 2 for what the user named wrongly, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Named(_)) { 2 } else { 1 }
    }
}

/// Measuring takes hours: a results file that is named in the report's place must not be lost.
pub(super) fn refuse_other_files(path: &Path) -> Result<(), ReportError> {
    let name = path.display();
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD.len() as u64).read_to_end(&mut head));
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) if head == HEAD.as_bytes() => Ok(()),
        Err(error) if error.kind() != ErrorKind::IsADirectory => {
            Err(anyhow!(error).context(format!("{name}: cannot be written")).into())
        }
        _ => Err(ReportError::Named(anyhow!("{name}: is there and is no report: name another file or remove it"))),
    }
}

/// Writes `path` whole or not at all.
pub(super) fn write(path: &Path, html: &str) -> anyhow::Result<()> {
    atomic_file::write(path, html.as_bytes())
        .map(drop)
        .with_context(|| format!("{}: cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, sweep, variant};
    use std::fs;

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
            assert!(error.to_string().contains("is there and is no report"), "{error}");
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
