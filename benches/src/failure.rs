// SPDX-License-Identifier: Apache-2.0
//! What is said when a verb fails.

use std::error::Error as StdError;
use std::process::ExitCode;

use flatboot_bench::Error;
use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::host::{ConsoleEnd, HostError};

/// Why nothing, or not all, was run.
pub(crate) enum Failure {
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
    /// Says why; the exit code.
    pub(crate) fn report(&self) -> ExitCode {
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

/// An error and its causes, in one line.
pub(crate) fn print_chain(error: &dyn StdError) {
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
