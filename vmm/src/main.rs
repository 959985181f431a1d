// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::env::{self, VarError};
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use flatboot::check::{self, chain};
use flatboot::cli::{Cli, ExitStatus, NotACommand, RunArgs, Verb, in_options, map, stdio};
use flatboot::config::VmConfig;
use flatboot::keeper::{self, Kept};
use flatboot::run::{self, Outcome};

fn main() -> ExitCode {
    let zero = Instant::now();
    let cli = match Cli::from_arguments(env::args_os()) {
        Ok(cli) => cli,
        Err(NotACommand::Answer(text)) => {
            return printed(print(&text));
        }
        Err(NotACommand::Wrong(line)) => return fail(&line, ExitStatus::Usage),
    };
    if let Err(line) = log_to_stderr() {
        return fail(&line, ExitStatus::Usage);
    }
    match cli.verb {
        Verb::Run(args) => run(*args, zero),
        Verb::Config(raw) => match VmConfig::try_from(*raw) {
            Ok(vm) => printed(vm.to_json().map_err(io::Error::other).and_then(|json| print(&json))),
            Err(error) => refuse(&chain(&error), error.is_usage()),
        },
        Verb::Check(args) => printed(check::report(args.json)),
        Verb::Map(args) => match map::run(&args) {
            Ok(()) => ExitStatus::Done.into(),
            Err(error) => refuse(&in_options(&chain(&error)), error.is_usage()),
        },
    }
}

fn run(args: RunArgs, zero: Instant) -> ExitCode {
    let (typed, seccomp) = (args.config.is_none(), args.seccomp);
    let outcome = match args.vm() {
        Ok(vm) if vm.restarts() && !keeper::is_kept() => {
            return match keeper::keep() {
                Ok(Kept::Status(status)) => status.into(),
                Ok(Kept::Stopped) => ExitStatus::Timeout.into(),
                Err(error) => fail(&chain(&error), ExitStatus::Error),
            };
        }
        Ok(vm) => run::run(vm, seccomp, zero),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(Outcome { again: true, .. }) => keeper::AGAIN.into(),
        Ok(Outcome { ending, .. }) => ExitStatus::from(&ending).into(),
        Err(error) if typed => refuse(&in_options(&chain(&error)), error.is_usage()),
        // A file is no command line, whatever is wrong with it.
        Err(error) => refuse(&chain(&error), false),
    }
}

fn refuse(line: &str, usage: bool) -> ExitCode {
    fail(line, if usage { ExitStatus::Usage } else { ExitStatus::Error })
}

fn print(text: &str) -> io::Result<ExitStatus> {
    stdio::print(text).map(|()| ExitStatus::Done)
}

fn fail(line: &str, status: ExitStatus) -> ExitCode {
    // A file's name may have line feeds in it, and worse for a terminal.
    let line = line.replace(|character: char| character.is_control(), "\u{fffd}");
    stdio::tell(&format!("flatboot: error: {line}"));
    status.into()
}

/// What it was to print is the whole answer: without it, nothing is done.
fn printed(result: io::Result<ExitStatus>) -> ExitCode {
    result.map_or_else(|error| fail(&format!("standard output: {error}"), ExitStatus::Error), ExitCode::from)
}

/// Diagnostics for whoever asks for them: `FLATBOOT_LOG=debug`, in the syntax of `RUST_LOG`; warnings otherwise.
fn log_to_stderr() -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    let value = match env::var("FLATBOOT_LOG") {
        Ok(value) => value,
        Err(VarError::NotPresent) => "warn".to_owned(),
        Err(VarError::NotUnicode(value)) => value.to_string_lossy().into_owned(),
    };
    let filter = EnvFilter::try_new(&value).map_err(|_| {
        format!("FLATBOOT_LOG={value}: must be error, warn, info, debug or trace, or a filter like flatboot::vm=debug")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).without_time();
    // A standard error that takes nothing is no reason to panic.
    log.log_internal_errors(false).init();
    Ok(())
}
