// SPDX-License-Identifier: Apache-2.0
//! Writes flatboot's manual pages and its completions for shells into a directory, for packages: from the same words as `--help`.

mod pages;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use flatboot::cli::Cli;

fn main() -> ExitCode {
    let Some(out) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: manuals DIRECTORY");
        return ExitCode::from(2);
    };
    match pages::write("flatboot", Cli::command, &out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manuals: {}: {error}", out.display());
            ExitCode::FAILURE
        }
    }
}
