// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::process::ExitCode;
use std::time::Instant;

use flatboot::check::{self, chain};
use flatboot::cli::{Cli, ExitStatus, NotACommand, Verb, map};
use flatboot::run;

fn main() -> ExitCode {
    let zero = Instant::now();
    let cli = match Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => cli,
        Err(NotACommand::Answer(text)) => {
            print!("{text}");
            return ExitStatus::Done.into();
        }
        Err(NotACommand::Wrong(line)) => return fail(&line, ExitStatus::Usage),
    };
    log_to_stderr();
    let wrong = |usage| if usage { ExitStatus::Usage } else { ExitStatus::Error };
    match cli.verb {
        Verb::Run(raw) => match run::run(raw, zero) {
            Ok(ending) => ending.exit_status().into(),
            Err(error) => fail(&chain(&error), wrong(error.is_usage())),
        },
        Verb::Check(args) => check::report(args.json).into(),
        Verb::Map(args) => match map::run(&args) {
            Ok(()) => ExitStatus::Done.into(),
            Err(error) => fail(&chain(&error), wrong(error.is_usage())),
        },
    }
}

fn fail(line: &str, status: ExitStatus) -> ExitCode {
    eprintln!("flatboot: error: {line}");
    status.into()
}

/// Diagnostics for whoever asks for them: `FLATBOOT_LOG=debug`, in the syntax of `RUST_LOG`; warnings otherwise.
fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("FLATBOOT_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
}
