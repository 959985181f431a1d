// SPDX-License-Identifier: Apache-2.0
//! Diagnostics: a line each, with time, level, thread and module, to standard error or a file.

use std::env::{self, VarError};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{OFlags, fcntl_setfl};
use tracing_subscriber::EnvFilter;

/// What says how much, in the syntax of `RUST_LOG`; stronger than `-v`.
const LEVELS: &str = "FLATBOOT_LOG";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The environment variable is no filter.
    #[error("{LEVELS}={0}: must be error, warn, info, debug or trace, or a filter like flatboot::vm=debug")]
    Levels(String),
    /// The file cannot be written.
    #[error("--log-file {path}: must be a file that can be written: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

impl LogError {
    /// Whether the command line or its environment is wrong, whatever files there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Levels(_))
    }
}

/// Begins to log: warnings, and with `verbose` one level more for each of it. What a `file` holds stays.
pub fn start(file: Option<&Path>, verbose: u8) -> Result<(), LogError> {
    let levels = match env::var(LEVELS) {
        Ok(levels) => levels,
        Err(VarError::NotPresent) => level(verbose).to_owned(),
        Err(VarError::NotUnicode(levels)) => levels.to_string_lossy().into_owned(),
    };
    let filter = EnvFilter::try_new(&levels).map_err(|_| LogError::Levels(levels))?;
    // A log that takes nothing is no reason to panic.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_thread_names(true).log_internal_errors(false);
    let Some(path) = file else {
        log.with_ansi(false).with_writer(io::stderr).init();
        return Ok(());
    };
    let file = open(path).map_err(|source| LogError::File { path: path.display().to_string(), source })?;
    log.with_ansi(false).with_writer(Mutex::new(file)).init();
    Ok(())
}

/// A pipe has to have a reader: to open one would wait for it.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    if !path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return options.open(path);
    }
    let file = options.custom_flags(libc::O_NONBLOCK).open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("nobody reads this pipe"),
        _ => error,
    })?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

const fn level(verbose: u8) -> &'static str {
    match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    }
}
