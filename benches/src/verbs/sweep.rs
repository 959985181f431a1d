// SPDX-License-Identifier: Apache-2.0
//! `run` and the observer that it runs beside each VMM.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use flatboot_bench::observe::{self, Interrupted};
use flatboot_bench::sweep::{self, Finished, Stop, SweepError};
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{ObserveArgs, SweepArgs};
use crate::failure::print_chain;

/// Exit code of a sweep that was stopped: its file is good, and not complete.
const EXIT_STOPPED: u8 = 3;

/// The sweep.
pub(crate) fn run(args: &SweepArgs) -> ExitCode {
    let request = args.request();
    let stop = Arc::new(Stop::default());
    let result = catch(Arc::clone(&stop)).and_then(|()| sweep::run(&request, &stop));
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

/// From here on signals stop the sweep, and nothing else.
fn catch(stop: Arc<Stop>) -> Result<(), SweepError> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(SweepError::Scratch)?;
    thread::spawn(move || signals.forever().for_each(|signal| stop.ask(signal)));
    Ok(())
}

/// The observer: its answer is JSON on standard output.
pub(crate) fn observe(args: &ObserveArgs) -> ExitCode {
    let answer = if args.facts { facts(args) } else { boot(args) };
    match answer.and_then(|json| writeln!(io::stdout(), "{json}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_chain(&error);
            ExitCode::FAILURE
        }
    }
}

fn facts(args: &ObserveArgs) -> io::Result<String> {
    Ok(serde_json::to_string(&observe::surroundings(&args.words))?)
}

fn boot(args: &ObserveArgs) -> io::Result<String> {
    let [order] = &*args.words else { return Err(io::Error::other("observe: expected one order")) };
    let interrupted = Arc::new(Interrupted::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    // A sweep that is killed takes its VMM with it.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(serde_json::to_string(&observe::boot(&serde_json::from_str(order)?, &interrupted)?)?)
}
