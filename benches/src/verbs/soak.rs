// SPDX-License-Identifier: Apache-2.0
//! `soak` and the attendant that it runs beside each VMM.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::soak::{self, SoakError, Tally};
use flatboot_bench::sweep::Stop;

use super::helper;
use crate::cli::{AttendArgs, SoakArgs};
use crate::failure::print_chain;
use crate::interrupts;

/// Exit code of a soak that was stopped.
const EXIT_STOPPED: u8 = 3;

/// The soak.
pub(crate) fn run(args: &SoakArgs) -> ExitCode {
    let request = args.request();
    let stops: Arc<Vec<Stop>> = Arc::new((0..request.hosts).map(|_| Stop::default()).collect());
    let asked = Arc::clone(&stops);
    let caught =
        interrupts::ask(move |signal| asked.iter().for_each(|stop| stop.ask(signal))).map_err(SoakError::Signals);
    let result = caught.and_then(|()| soak::run(&request, &stops, &mut io::stdout()));
    let stopped = stops.iter().any(Stop::is_asked);
    match result {
        Ok(Tally { failed: 1.., .. }) => ExitCode::FAILURE,
        Ok(_) if stopped => ExitCode::from(EXIT_STOPPED),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            print_chain(&error);
            ExitCode::from(if matches!(error, SoakError::Hosts(_)) { 2 } else { EXIT_HOST })
        }
    }
}

/// The attendant.
pub(crate) fn attend(args: &AttendArgs) -> ExitCode {
    helper::answer(|| {
        let order = serde_json::from_str(&args.order)?;
        Ok(serde_json::to_string(&soak::attend(&order, &*interrupts::interrupted()?)?)?)
    })
}
