// SPDX-License-Identifier: Apache-2.0
//! The host kernel's log: kept apart from the program's output, shown only when the host fails.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::artifact;
use crate::error::ConsoleEnd;

/// At most this much of a log is read back.
const MAX_LOG: u64 = 4 << 20;
/// Lines shown on the terminal.
const SHOWN_LINES: usize = 12;
/// Logs of failed hosts that are kept.
const KEPT_LOGS: usize = 16;

/// The open console log of a running host. The file may be unlinked: only the descriptor is used.
#[derive(Debug)]
pub(super) struct Console {
    file: File,
}

impl Console {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Self { file })
    }

    /// Keeps the log and picks the reason: the kernel's own words if it has some, else `otherwise`.
    pub(super) fn end(&mut self, otherwise: String) -> ConsoleEnd {
        let text = self.read().unwrap_or_default();
        let lines: Vec<String> = text.lines().map(printable).filter(|line| !line.is_empty()).collect();
        let reason = lines.iter().find_map(|line| failure_line(line)).unwrap_or(otherwise);
        let last_lines = lines[lines.len().saturating_sub(SHOWN_LINES)..].to_vec();
        let log = if lines.is_empty() { None } else { keep(&text).ok() };
        ConsoleEnd { reason, log, last_lines }
    }

    fn read(&mut self) -> io::Result<String> {
        let length = self.file.seek(SeekFrom::End(0))?;
        self.file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG)))?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut self.file).take(MAX_LOG).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Without escape sequences' escape, so that a log cannot drive the terminal.
fn printable(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).collect::<String>().trim_end().to_owned()
}

fn failure_line(line: &str) -> Option<String> {
    ["Kernel panic - not syncing", "BUG: ", "Oops: "].iter().find_map(|mark| Some(line[line.find(mark)?..].to_owned()))
}

/// Puts the log into the cache, the oldest kept ones making room.
fn keep(text: &str) -> io::Result<PathBuf> {
    let directory = artifact::cache_directory().join("host-logs");
    fs::create_dir_all(&directory)?;
    let mut kept: Vec<_> = fs::read_dir(&directory)?
        .filter_map(|entry| entry.ok().and_then(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))))
        .collect();
    kept.sort();
    for (_, path) in kept.iter().rev().skip(KEPT_LOGS - 1) {
        // Another run may have removed it first.
        let _ = fs::remove_file(path);
    }
    let mut file = tempfile::Builder::new().prefix("host-").suffix(".log").tempfile_in(&directory)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    let (_, path) = file.keep().map_err(|e| e.error)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_words_are_the_reason() {
        let line = "[    1.2] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100";
        assert_eq!(
            failure_line(line).as_deref(),
            Some("Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100")
        );
        assert_eq!(failure_line("[    1.2] Run /init as init process"), None);
    }

    #[test]
    fn a_log_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r"), "a[2Jb");
    }
}
