// SPDX-License-Identifier: Apache-2.0
//! Writes the contract's C headers: into the directory that the argument names, or to standard output.

use std::path::PathBuf;
use std::{env, fs, io};

use flatboot_handoff::c_header;

fn main() -> io::Result<()> {
    let directory = env::args_os().nth(1).map(PathBuf::from);
    for header in c_header::ALL {
        match &directory {
            Some(directory) => fs::write(directory.join(header.file_name), header.to_string())?,
            None => print!("{header}"),
        }
    }
    Ok(())
}
