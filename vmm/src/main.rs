// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::env;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use flatboot::chain::chain;
use flatboot::check;
use flatboot::cli::{Cli, ExitStatus, NotACommand, OutsideArgs, RunArgs, Verb, in_options, map, stdio};
use flatboot::config::VmConfig;
use flatboot::inherited;
use flatboot::keeper::{self, Kept};
use flatboot::observe::log;
use flatboot::run::{self, Outcome, RunError};
use flatboot::sandbox::Seccomp;

fn main() -> ExitCode {
    let zero = Instant::now();
    inherited::remember();
    let cli = match Cli::from_arguments(env::args_os()) {
        Ok(cli) => cli,
        Err(NotACommand::Answer(text)) => {
            return printed(print(&text));
        }
        Err(NotACommand::Wrong(line)) => return fail(&line, ExitStatus::Usage),
    };
    let process = match &cli.verb {
        Some(Verb::Run(args)) => &args.process,
        _ => &cli.process,
    };
    if let Err(error) = log::start(process.log_file.as_deref(), process.verbose) {
        return fail(&error.to_string(), if error.is_usage() { ExitStatus::Usage } else { ExitStatus::Error });
    }
    let Some(verb) = cli.verb else {
        return serve(None, cli.outside, cli.process.seccomp, zero)
            .unwrap_or_else(|error| refuse(&in_options(&chain(&error)), error.is_usage()));
    };
    match verb {
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
    let typed = args.config.is_none();
    // A file is no command line, whatever is wrong with it.
    let described = |error: RunError| refuse(&chain(&error), false);
    let typed_in = |error: RunError| refuse(&in_options(&chain(&error)), error.is_usage());
    run_or_keep(args, zero).unwrap_or_else(if typed { typed_in } else { described })
}

/// A VM that is to start again has a process of its own each time, unless this one serves requests.
fn run_or_keep(args: RunArgs, zero: Instant) -> Result<ExitCode, RunError> {
    let (outside, seccomp) = (args.outside.clone(), args.process.seccomp);
    let vm = args.vm()?;
    if !vm.restart_on_reset() || outside.api_socket.is_some() || keeper::is_kept() {
        return serve(Some(vm), outside, seccomp, zero);
    }
    Ok(match keeper::keep() {
        Ok(Kept::Status(status)) => status.into(),
        Ok(Kept::Stopped) => ExitStatus::Timeout.into(),
        Err(error) => fail(&chain(&error), ExitStatus::Error),
    })
}

/// Runs `vm`, or what somebody asks for.
fn serve(vm: Option<VmConfig>, outside: OutsideArgs, seccomp: Seccomp, zero: Instant) -> Result<ExitCode, RunError> {
    let outcome = run::run(vm, outside.open()?, seccomp, zero)?;
    Ok(match outcome {
        Some(Outcome { again: true, .. }) => keeper::AGAIN.into(),
        outcome => outcome.map_or(ExitStatus::Done, |outcome| ExitStatus::from(&outcome.ending)).into(),
    })
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
