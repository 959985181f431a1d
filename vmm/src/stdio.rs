// SPDX-License-Identifier: Apache-2.0
//! Standard output and standard error, by functions that cannot panic: `print!` and `eprintln!` do when nobody reads.

use std::io::{self, Write};

/// Writes `text` to standard output. A reader that went away has read what it wanted: that is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes `line` to standard error, in one piece. There is nobody to tell if that fails.
pub fn tell(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
