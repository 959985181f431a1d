// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::env::{self, VarError};
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use flatboot::check::{self, chain};
use flatboot::cli::{Cli, ExitStatus, NotACommand, OutsideArgs, Verb, in_options, map, stdio};
use flatboot::config::{ConfigError, VmConfig};
use flatboot::ending::Ending;
use flatboot::run::{self, RunError};

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
    let Some(verb) = cli.verb else { return serve(None, Ok(None), cli.outside, zero) };
    match verb {
        Verb::Run(args) => {
            let (config, outside) = (args.config.clone(), args.outside.clone());
            serve(config.as_deref(), args.vm().map(Some), outside, zero)
        }
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

/// Runs `vm`, which is in the file `config` if it was not typed, or what somebody asks for.
fn serve(
    config: Option<&Path>,
    vm: Result<Option<VmConfig>, ConfigError>,
    outside: OutsideArgs,
    zero: Instant,
) -> ExitCode {
    let run = || -> Result<Option<Ending>, RunError> { run::run(vm?, outside.open()?, zero) };
    match run() {
        Ok(ending) => ending.as_ref().map_or(ExitStatus::Done, ExitStatus::from).into(),
        // A file is no command line, whatever is wrong with it.
        Err(error) if config.is_some() => refuse(&chain(&error), false),
        Err(error) => refuse(&in_options(&chain(&error)), error.is_usage()),
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
