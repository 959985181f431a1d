// SPDX-License-Identifier: Apache-2.0
//! What is said when a verb fails, and the exit code.

use anyhow::{Error, Result};
use flatboot_bench::Error as HostError;
use flatboot_bench::command::EXIT_HOST;

/// The exit code of a verb, `code` if it has failed: which is told.
pub(crate) fn or(code: u8, result: Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        tell(&error);
        code
    })
}

/// The same of a verb that runs a program on a host. If that has failed the end of its log is shown.
pub(crate) fn or_of_host(result: Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        tell(&error);
        let of_host = error.downcast_ref::<HostError>();
        if let Some(HostError::Ended(end) | HostError::StartTimeout { end, .. }) = of_host {
            if let Some(log) = &end.log {
                eprintln!("flatboot-bench: the host's whole log is {}; it ends:", log.display());
            }
            end.last_lines.iter().for_each(|line| eprintln!("  {line}"));
        }
        of_host.map_or(EXIT_HOST, HostError::exit_code)
    })
}

/// An error and its causes, in one line.
fn tell(error: &Error) {
    eprintln!("flatboot-bench: {error:#}");
}
