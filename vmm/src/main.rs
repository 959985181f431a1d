// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use flatboot::check::{self, chain};
use flatboot::cli::{Cli, Verb, map};
use flatboot::run;

/// Exit status of whatever went wrong before or beside the guest.
const FAILURE: u8 = 1;

fn main() -> ExitCode {
    let zero = Instant::now();
    let cli = Cli::parse();
    log_to_stderr();
    let code = match cli.verb {
        Verb::Run(raw) => run::run(raw, zero).map(|ending| ending.exit_code()).map_err(|error| chain(&error)),
        Verb::Check(args) => Ok(check::report(args.json)),
        Verb::Map(args) => map::run(args).map(|()| 0).map_err(|error| chain(&error)),
    };
    ExitCode::from(code.unwrap_or_else(|line| {
        eprintln!("flatboot: error: {line}");
        FAILURE
    }))
}

/// Diagnostics for whoever asks for them: `FLATBOOT_LOG=debug`, in the syntax of `RUST_LOG`; warnings otherwise.
fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("FLATBOOT_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}
