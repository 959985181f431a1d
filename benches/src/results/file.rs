// SPDX-License-Identifier: Apache-2.0
//! Reading and writing results files.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::atomic_file;
use crate::terminal::plain;

use super::check;
use super::format::{FORMAT, Results, VERSION};

/// No sweep comes near this: a boot takes a few kilobytes. What is larger is something else, or endless.
const MOST_BYTES: u64 = 256 << 20;

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
    /// It is too large to be one.
    #[error("{}: larger than {} MiB, which no results file is", path.display(), MOST_BYTES >> 20)]
    Size {
        /// The file.
        path: PathBuf,
    },
    /// Nothing is in it.
    #[error("{}: empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
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
    #[error("{}: version {version}, but this flatboot-bench reads up to {VERSION}: a newer one wrote it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: u64,
    },
    /// Its sweep cannot be.
    #[error("{}: {why}", path.display())]
    Sweep {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
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

/// What every version says of itself. Any JSON may come here.
#[derive(Deserialize)]
struct Head {
    format: Option<Value>,
    version: Option<Value>,
}

/// Reads `path`.
pub fn load(path: &Path) -> Result<Results, ResultsError> {
    let failed = |source| ResultsError::Read { path: path.to_path_buf(), source };
    let mut bytes = Vec::new();
    // One byte more than may be tells a file that is too large from one that just fits; its length in the directory would
    // say nothing of a pipe.
    fs::File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ResultsError::Size { path: path.to_path_buf() });
    }
    parse(path, &bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Results, ResultsError> {
    if bytes.trim_ascii().is_empty() {
        return Err(ResultsError::Empty { path: path.to_path_buf() });
    }
    check_head(path, bytes)?;
    let results: Results = read(path, bytes)?;
    check::sweep(&results.sweep).map_err(|why| ResultsError::Sweep { path: path.to_path_buf(), why })?;
    check::boots(&results).map_err(|(boot, why)| ResultsError::Boot { path: path.to_path_buf(), boot, why })?;
    Ok(results)
}

/// Before anything else is read: a newer version may have everything else differently.
fn check_head(path: &Path, bytes: &[u8]) -> Result<(), ResultsError> {
    let format = |why: String| Err(ResultsError::Format { path: path.to_path_buf(), why: plain(&why) });
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return format("it is not a JSON object".to_owned());
    }
    let head: Head = read(path, bytes)?;
    match head.format {
        Some(Value::String(is)) if is == FORMAT => {}
        Some(is) => return format(format!("its format is {}, not {FORMAT:?}", brief(&is))),
        None => return format("it does not name its format".to_owned()),
    }
    match head.version.as_ref().map(|version| (version, version.as_u64())) {
        Some((_, Some(version))) if (1..=u64::from(VERSION)).contains(&version) => Ok(()),
        Some((_, Some(version))) if version > 0 => Err(ResultsError::Version { path: path.to_path_buf(), version }),
        Some((version, _)) => format(format!("its version is {}, not a whole number from 1", brief(version))),
        None => format("it does not say its version".to_owned()),
    }
}

/// As JSON, but not the whole of a large one.
fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn read<'a, T: Deserialize<'a>>(path: &Path, bytes: &'a [u8]) -> Result<T, ResultsError> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => ResultsError::CutShort { path: path.to_path_buf(), line: error.line() },
        // The message may quote the file, which may hold what a terminal obeys.
        _ => ResultsError::Format { path: path.to_path_buf(), why: plain(&error.to_string()) },
    })
}

/// Whether a file can be made where `path` is to be.
pub fn can_save(path: &Path) -> Result<(), ResultsError> {
    atomic_file::can_write(path).map_err(|source| ResultsError::Write { path: path.to_path_buf(), source })
}

/// Writes `path` whole or not at all: a power cut leaves the old file or the new one.
pub fn save(results: &Results, path: &Path) -> Result<(), ResultsError> {
    let failed = |source| ResultsError::Write { path: path.to_path_buf(), source };
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| failed(error.into()))?;
    json.push(b'\n');
    atomic_file::write(path, &json).map_err(failed)
}
