// SPDX-License-Identifier: Apache-2.0
//! The helpers that sweep and soak run beside each VMM: their answer is JSON on standard output.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::failure::print_chain;

/// Says what `help` gives.
pub(crate) fn answer(help: impl FnOnce() -> io::Result<String>) -> ExitCode {
    match help().and_then(|json| writeln!(io::stdout(), "{json}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_chain(&error);
            ExitCode::FAILURE
        }
    }
}
