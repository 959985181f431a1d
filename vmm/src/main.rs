// SPDX-License-Identifier: Apache-2.0
//! The `flatboot` command.

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use flatboot::chain::chain;
use flatboot::check;
use flatboot::cli::{Cli, ExitStatus, NoVm, NotACommand, OutsideArgs, RunArgs, Verb, in_options, map, stdio};
use flatboot::config::{ConfigError, VmConfig};
use flatboot::descriptors;
use flatboot::inherited;
use flatboot::keeper::{self, Kept};
use flatboot::observe::log;
use flatboot::run::{self, First, Outcome, RunError};
use flatboot::sandbox::Seccomp;

fn main() -> ExitCode {
    let zero = Instant::now();
    inherited::remember();
    descriptors::make_room();
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
        return serve(None, cli.outside, cli.process.seccomp, zero).unwrap_or_else(|error| refuse(error.typed()));
    };
    match verb {
        Verb::Run(args) => run_verb(*args, zero),
        Verb::Config(raw) => match VmConfig::try_from(*raw) {
            Ok(vm) => printed(vm.to_json().map_err(io::Error::other).and_then(|json| print(&json))),
            Err(error) => refuse(typed(&error, error.is_usage())),
        },
        Verb::Check(args) => printed(check::report(args.json)),
        Verb::Map(args) => match map::print(&args) {
            Ok(()) => ExitStatus::Done.into(),
            Err(error) => refuse(typed(&error, error.is_usage())),
        },
    }
}

/// A line for whoever has started flatboot, and whether the command line alone is wrong.
type Refusal = (String, bool);

/// What has kept flatboot from doing what it was started for.
enum Failure {
    /// What only a command line says.
    Options(ConfigError),
    /// The VM, or what it has come to.
    Vm(RunError),
}

impl Failure {
    /// In the words of a command line.
    fn typed(&self) -> Refusal {
        match self {
            Self::Options(error) => typed(error, error.is_usage()),
            Self::Vm(error) => typed(error, error.is_usage()),
        }
    }

    /// In those of a file that describes the VM, which is no command line, whatever is wrong with it.
    fn described(&self) -> Refusal {
        match self {
            Self::Options(_) => self.typed(),
            Self::Vm(error) => (chain(error), false),
        }
    }
}

fn typed(error: &dyn Error, usage: bool) -> Refusal {
    (in_options(|| chain(error)), usage)
}

fn run_verb(args: RunArgs, zero: Instant) -> ExitCode {
    let (outside, seccomp) = (args.outside.clone(), args.process.seccomp);
    let is_typed = args.config.is_none();
    let vm = match args.first() {
        Ok(vm) => vm,
        Err(NoVm::Typed(error)) => return refuse(typed(&error, error.is_usage())),
        Err(error) => return refuse((chain(&error), false)),
    };
    let told = |error: Failure| refuse(if is_typed { error.typed() } else { error.described() });
    run_or_keep(vm, outside, seccomp, zero).unwrap_or_else(told)
}

/// A VM that is to start again has a process of its own each time, unless this one serves requests.
fn run_or_keep(vm: First, outside: OutsideArgs, seccomp: Seccomp, zero: Instant) -> Result<ExitCode, Failure> {
    if !vm.restarts() || outside.api_socket.is_some() || keeper::is_kept() {
        return serve(Some(vm), outside, seccomp, zero);
    }
    Ok(match keeper::keep() {
        Ok(Kept::Status(status)) => status.into(),
        Ok(Kept::Stopped) => ExitStatus::Timeout.into(),
        Err(error) => fail(&in_options(|| chain(&error)), ExitStatus::Error),
    })
}

/// Runs `vm`, or what somebody asks for.
fn serve(vm: Option<First>, outside: OutsideArgs, seccomp: Seccomp, zero: Instant) -> Result<ExitCode, Failure> {
    let outside = outside.open(vm.as_ref()).map_err(Failure::Options)?;
    let outcome = run::run(vm, outside, seccomp, zero).map_err(Failure::Vm)?;
    Ok(match outcome {
        Some(Outcome { again: true, .. }) => keeper::AGAIN.into(),
        outcome => outcome.map_or(ExitStatus::Done, |outcome| ExitStatus::from(&outcome.ending)).into(),
    })
}

fn refuse((line, usage): Refusal) -> ExitCode {
    fail(&line, if usage { ExitStatus::Usage } else { ExitStatus::Error })
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
