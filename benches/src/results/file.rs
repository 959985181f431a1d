// SPDX-License-Identifier: Apache-2.0
//! Reading and writing results files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{FORMAT, Results, VERSION};
use crate::whole;

/// A results file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// It cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("{}: cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It ends in the middle.
    #[error("{}: cut short: it ends at line {line}, in the middle of a value", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// Its last line.
        line: usize,
    },
    /// It is something else.
    #[error("{}: not a results file of flatboot-bench: {why}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        why: String,
    },
    /// A newer program wrote it.
    #[error("{}: version {version}; this flatboot-bench reads versions up to {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: u32,
    },
    /// It contradicts itself.
    #[error("{}: boot {boot}: {why}", path.display())]
    Boot {
        /// The file.
        path: PathBuf,
        /// Index of the boot, from 0.
        boot: usize,
        /// What is wrong.
        why: String,
    },
}

/// What every version says of itself.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Reads `path`.
pub fn load(path: &Path) -> Result<Results, ResultsError> {
    let bytes = fs::read(path).map_err(|source| ResultsError::Read { path: path.to_path_buf(), source })?;
    parse(path, &bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Results, ResultsError> {
    let path = path.to_path_buf();
    // The head first: a newer version may have everything else differently.
    let head: Head = read(&path, bytes)?;
    if head.format != FORMAT {
        return Err(ResultsError::Format { path, why: format!("format {:?}, expected {FORMAT:?}", head.format) });
    }
    if head.version == 0 || head.version > VERSION {
        return Err(ResultsError::Version { path, version: head.version });
    }
    let results: Results = read(&path, bytes)?;
    let mut expected = results.sweep.boots();
    for (boot, is) in results.boots.iter().enumerate() {
        if expected.next() != Some((is.variant, is.round)) {
            let why = format!("variant {} in round {} is not the sweep's next", is.variant, is.round);
            return Err(ResultsError::Boot { path, boot, why });
        }
    }
    Ok(results)
}

fn read<'a, T: Deserialize<'a>>(path: &Path, bytes: &'a [u8]) -> Result<T, ResultsError> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => ResultsError::CutShort { path: path.to_path_buf(), line: error.line() },
        _ => ResultsError::Format { path: path.to_path_buf(), why: error.to_string() },
    })
}

/// Whether a file can be made where `path` is to be.
pub fn can_save(path: &Path) -> Result<(), ResultsError> {
    whole::can_write(path).map_err(|source| ResultsError::Write { path: path.to_path_buf(), source })
}

/// Writes `path` whole or not at all: a power cut leaves the old file or the new one.
pub fn save(results: &Results, path: &Path) -> Result<(), ResultsError> {
    let failed = |source| ResultsError::Write { path: path.to_path_buf(), source };
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| failed(error.into()))?;
    json.push(b'\n');
    whole::write(path, &json).map_err(failed)
}
