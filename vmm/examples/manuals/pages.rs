// SPDX-License-Identifier: Apache-2.0
//! Manual pages and completions of a program: flatboot's, and flatboot-bench's, which has this file too.

use std::path::Path;
use std::{fs, io};

use clap::{Command, ValueEnum};
use clap_complete::Shell;

/// Writes those of the program `name` to the directory `out`.
pub(crate) fn write(name: &str, command: impl Fn() -> Command, out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    clap_mangen::generate_to(command(), out)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command(), name, out)?;
    }
    Ok(())
}
