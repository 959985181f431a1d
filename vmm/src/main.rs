// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::env;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use flatboot::check::{self, chain};
use flatboot::cli::{Cli, ExitStatus, NotACommand, RunArgs, Verb, in_options, map, stdio};
use flatboot::config::VmConfig;
use flatboot::keeper::{self, Kept};
use flatboot::observe::log;
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
    let (file, verbose) = match &cli.verb {
        Verb::Run(args) => (args.log_file.as_deref(), args.verbose),
        _ => (None, 0),
    };
    if let Err(error) = log::start(file, verbose) {
        return fail(&error.to_string(), if error.is_usage() { ExitStatus::Usage } else { ExitStatus::Error });
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
