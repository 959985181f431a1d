// SPDX-License-Identifier: Apache-2.0
//! Writes the contract's C headers: into the repository whose root the argument names, or to standard output.

use std::path::PathBuf;
use std::{env, fs, io};

use flatboot_handoff::c_header;

fn main() -> io::Result<()> {
    let root = env::args_os().nth(1).map(PathBuf::from);
    for header in c_header::ALL {
        match &root {
            Some(root) => fs::write(root.join(header.path), header.to_string())?,
            None => print!("{header}"),
        }
    }
    Ok(())
}
