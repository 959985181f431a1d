// SPDX-License-Identifier: Apache-2.0
//! `soak` and the attendant that it runs beside each VMM.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use flatboot_bench::command::EXIT_HOST;
use flatboot_bench::observe::Interrupted;
use flatboot_bench::soak::{self, SoakError, Tally};
use flatboot_bench::sweep::Stop;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{AttendArgs, SoakArgs};
use crate::failure::print_chain;

/// Exit code of a soak that was stopped.
const EXIT_STOPPED: u8 = 3;

/// The soak.
pub(crate) fn run(args: &SoakArgs) -> ExitCode {
    let request = args.request();
    let stops: Arc<Vec<Stop>> = Arc::new((0..request.hosts).map(|_| Stop::default()).collect());
    let result = catch(Arc::clone(&stops)).and_then(|()| soak::run(&request, &stops, &mut io::stdout()));
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

/// From here on signals stop the soak, and nothing else.
fn catch(stops: Arc<Vec<Stop>>) -> Result<(), SoakError> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(SoakError::Signals)?;
    thread::spawn(move || signals.forever().for_each(|signal| stops.iter().for_each(|stop| stop.ask(signal))));
    Ok(())
}

/// The attendant: its answer is JSON on standard output.
pub(crate) fn attend(args: &AttendArgs) -> ExitCode {
    match seen(args).and_then(|json| writeln!(io::stdout(), "{json}")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_chain(&error);
            ExitCode::FAILURE
        }
    }
}

fn seen(args: &AttendArgs) -> io::Result<String> {
    let interrupted = Arc::new(Interrupted::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    // A soak that is killed takes its VMM with it.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(serde_json::to_string(&soak::attend(&serde_json::from_str(&args.order)?, &interrupted)?)?)
}
