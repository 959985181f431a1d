// SPDX-License-Identifier: Apache-2.0
//! Writes the contract's C headers, and the tables that the firmware's tests judge: into the repository whose root the argument
//! names, or to standard output.

use std::path::PathBuf;
use std::{env, fs, io};

use flatboot_handoff::c_header;

mod fixture;

fn main() -> io::Result<()> {
    let root = env::args_os().nth(1).map(PathBuf::from);
    let headers = c_header::ALL.iter().map(|header| (header.path, header.to_string()));
    for (path, content) in headers.chain([(fixture::PATH, fixture::content())]) {
        match &root {
            Some(root) => fs::write(root.join(path), content)?,
            None => print!("{content}"),
        }
    }
    Ok(())
}
