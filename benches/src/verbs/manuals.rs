// SPDX-License-Identifier: Apache-2.0
//! `manuals`: manual pages and completions for shells, from the same words as `--help`.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;

/// Writes them to `out`.
pub(crate) fn manuals(out: &Path) -> ExitCode {
    match write(out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flatboot-bench: {}: {error}", out.display());
            ExitCode::FAILURE
        }
    }
}

fn write(out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    clap_mangen::generate_to(Cli::command(), out)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "flatboot-bench", out)?;
    }
    Ok(())
}
