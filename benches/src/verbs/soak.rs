// SPDX-License-Identifier: Apache-2.0
//! `soak` and the attendant that it runs beside each VMM.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use flatboot_bench::soak;
use flatboot_bench::sweep::Stop;

use crate::cli::AttendArgs;
use crate::interrupts;

/// Exit code of a soak that was stopped.
const EXIT_STOPPED: u8 = 3;

/// The soak.
pub(crate) fn run(request: &soak::Request) -> Result<u8> {
    let stops: Arc<Vec<Stop>> = Arc::new((0..request.hosts).map(|_| Stop::default()).collect());
    let asked = Arc::clone(&stops);
    interrupts::ask(move |signal| asked.iter().for_each(|stop| stop.ask(signal)))
        .context("signals cannot be handled")?;
    let tally = soak::run(request, &stops, &mut io::stdout())?;
    Ok(match tally.failed {
        1.. => 1,
        0 if stops.iter().any(Stop::is_asked) => EXIT_STOPPED,
        0 => 0,
    })
}

/// The attendant: its answer is JSON on standard output.
pub(crate) fn attend(args: &AttendArgs) -> Result<u8> {
    let order = serde_json::from_str(&args.order)?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&soak::attend(&order, &*interrupts::interrupted()?)?)?)?;
    Ok(0)
}
