// SPDX-License-Identifier: Apache-2.0
//! Standard output and standard error, by functions that cannot panic: `print!` and `eprintln!` do when nobody reads.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// Writes `text` to standard output. A reader that went away has read what it wanted: that is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Standard output once more, past any buffer.
pub fn output() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Writes `line` to standard error, in one piece. There is nobody to tell if that fails.
pub fn tell(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
