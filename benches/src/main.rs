// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench`: runs programs on real KVM or in the emulated KVM host, and makes the tiny guest's initramfs.

mod boot;
mod cli;
mod interrupts;
mod programs;
mod reading;
mod soaking;
mod sweeping;

use std::error::Error as StdError;
use std::process::ExitCode;

use clap::Parser;
use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::host::{ConsoleEnd, HostError};
use flatboot_bench::{Error, initramfs, report, spec};

use cli::{Cli, HostVerb, ReportArgs, SpecArgs, Verb};

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Boot(args) => boot::boot(&args),
        Verb::Door(args) => programs::door(&args),
        Verb::Run(args) => return sweeping::run(&args),
        Verb::Show { file } => return reading::show(&file),
        Verb::Compare(args) => return reading::compare(&args),
        Verb::Observe(args) => return sweeping::observe(&args),
        Verb::Host { verb: HostVerb::Run(args) } => programs::emulated(&args),
        Verb::Host { verb: HostVerb::Shell(place) } => programs::shell(&place),
        Verb::Spec(args) => return specification(&args),
        Verb::Soak(args) => return soaking::run(&args),
        Verb::Attend(args) => return soaking::attend(&args),
        Verb::Report(args) => return draw(&args),
        Verb::Initramfs { out } => {
            return match initramfs::write_guest(&out) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    print_chain(&error);
                    ExitCode::FAILURE
                }
            };
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

fn draw(ReportArgs { files, out }: &ReportArgs) -> ExitCode {
    match report::write(files, out) {
        Ok(written) => {
            if written.hosts > 1 {
                eprintln!("flatboot-bench: the files come from {} hosts: each has charts of its own", written.hosts);
            }
            println!("{}: {} KiB; open it in a browser", out.display(), written.bytes.div_ceil(1024));
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_chain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// `spec`: the promises, listed or put to the test.
fn specification(args: &SpecArgs) -> ExitCode {
    let mut out = anstream::stdout();
    let result =
        if args.list { spec::list(&args.names, &mut out).map(|()| 0) } else { spec::run(&args.options(), &mut out) };
    result.map_or_else(
        |error| {
            print_chain(&error);
            ExitCode::from(error.exit_code())
        },
        ExitCode::from,
    )
}

/// Why nothing, or not all, was run.
enum Failure {
    Door(Error),
    Signals(std::io::Error),
    Port { port: u16, source: std::io::Error },
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Door(error.into())
    }
}

impl Failure {
    fn report(&self) -> ExitCode {
        match self {
            Self::Signals(error) => {
                eprintln!("flatboot-bench: cannot handle signals: {error}");
                ExitCode::from(EXIT_HOST)
            }
            Self::Port { port, source } => {
                eprintln!("flatboot-bench: --ssh-port {port}: 127.0.0.1:{port}: {source}: must be a free port");
                ExitCode::FAILURE
            }
            Self::Door(error) => {
                print_chain(error);
                if let Error::Host(HostError::Ended(end) | HostError::StartTimeout { end, .. }) = error {
                    print_console(end);
                }
                ExitCode::from(error.exit_code())
            }
        }
    }
}

fn print_chain(error: &dyn StdError) {
    eprintln!("flatboot-bench: {}", flatboot_bench::chain(error));
}

fn print_console(end: &ConsoleEnd) {
    if let Some(log) = &end.log {
        eprintln!("flatboot-bench: the host's whole log is {}; it ends:", log.display());
    }
    for line in &end.last_lines {
        eprintln!("  {line}");
    }
}
