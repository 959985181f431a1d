// SPDX-License-Identifier: Apache-2.0
//! `run` and the observer that it runs beside each VMM.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use flatboot_bench::observe;
use flatboot_bench::sweep::{self, Finished, Stop, SweepError};

use super::helper;
use crate::cli::{ObserveArgs, SweepArgs};
use crate::failure::print_chain;
use crate::interrupts;

/// Exit code of a sweep that was stopped: its file is good, and not complete.
const EXIT_STOPPED: u8 = 3;

/// The sweep.
pub(crate) fn run(args: &SweepArgs) -> ExitCode {
    let request = args.request();
    let stop = Arc::new(Stop::default());
    let asked = Arc::clone(&stop);
    let caught = interrupts::ask(move |signal| asked.ask(signal)).map_err(SweepError::Scratch);
    let result = caught.and_then(|()| sweep::run(&request, &stop));
    let out = request.out.display();
    match result {
        Ok(Finished::Complete(results)) => {
            eprintln!("==> {} boots in {out}; flatboot-bench show {out}", results.boots.len());
            ExitCode::SUCCESS
        }
        Ok(Finished::Stopped(results)) => {
            let (done, all) = (results.boots.len(), results.sweep.boots_wanted());
            eprintln!("flatboot-bench: stopped: {done} of {all} boots are in {out}; --resume goes on");
            ExitCode::from(EXIT_STOPPED)
        }
        Err(_) if stop.is_asked() => {
            eprintln!("flatboot-bench: stopped before the first boot");
            ExitCode::from(EXIT_STOPPED)
        }
        Err(error) => {
            print_chain(&error);
            ExitCode::from(2)
        }
    }
}

/// The observer.
pub(crate) fn observe(args: &ObserveArgs) -> ExitCode {
    helper::answer(|| {
        if args.facts {
            return Ok(serde_json::to_string(&observe::surroundings(&args.words))?);
        }
        let [order] = &*args.words else { return Err(io::Error::other("observe: expected one order")) };
        let order = serde_json::from_str(order)?;
        Ok(serde_json::to_string(&observe::boot(&order, &*interrupts::interrupted()?)?)?)
    })
}
