// SPDX-License-Identifier: Apache-2.0
//! `spec`: the promises, listed or put to the test, and what it runs beside VMs whose memory changes.

use std::io::{self, Write};

use anyhow::Result;
use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::{resize, spec};

use crate::failure::or;
use crate::interrupts;

/// What was asked for of them.
pub(crate) fn run(options: &spec::Options) -> u8 {
    let mut out = anstream::stdout();
    let result =
        if options.list { spec::list(&options.names, &mut out).map(|()| 0) } else { spec::run(options, &mut out) };
    let misuse = result.as_ref().is_err_and(anyhow::Error::is::<spec::Misuse>);
    or(if misuse { 2 } else { EXIT_HOST }, result)
}

/// Does what is ordered: its answer is JSON on standard output.
pub(crate) fn resize(order: &str) -> Result<u8> {
    let done = resize::resize(&serde_json::from_str(order)?, &*interrupts::interrupted()?)?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&done)?)?;
    Ok(0)
}
