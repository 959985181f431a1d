// SPDX-License-Identifier: Apache-2.0
//! Writes flatboot's manual pages and its completions for shells into a directory, for packages: from the same words as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use flatboot::cli::Cli;

fn main() -> ExitCode {
    let Some(out) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: manuals DIRECTORY");
        return ExitCode::from(2);
    };
    match write(&out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manuals: {}: {error}", out.display());
            ExitCode::FAILURE
        }
    }
}

fn write(out: &PathBuf) -> io::Result<()> {
    fs::create_dir_all(out)?;
    clap_mangen::generate_to(Cli::command(), out)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "flatboot", out)?;
    }
    Ok(())
}
