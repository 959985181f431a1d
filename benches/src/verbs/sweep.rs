// SPDX-License-Identifier: Apache-2.0
//! `run` and the observer that it runs beside each VMM.

use std::env;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use flatboot_bench::observe;
use flatboot_bench::slurm::{self, Spread};
use flatboot_bench::sweep::{self, Finished, Stop, Vms};

use crate::cli::{ObserveArgs, On, SweepArgs};
use crate::interrupts;

/// Exit code of a sweep that was stopped: its file is good, and not complete.
const EXIT_STOPPED: u8 = 3;

/// A sweep, of `fleets` if there are any.
pub(crate) fn run(args: &SweepArgs, fleets: &[Vms]) -> Result<u8> {
    if let (On::Here, Some(tasks), None) = (args.on, args.tasks, env::var_os("SLURM_ARRAY_TASK_ID")) {
        bail!("--tasks {tasks}: is for --on slurm, which is not asked for");
    }
    let request = args.request(fleets);
    let stop = Arc::new(Stop::default());
    let asked = Arc::clone(&stop);
    interrupts::ask(move |signal| asked.ask(signal)).context("signals cannot be handled")?;
    let out = request.out.display();
    let finished = match args.on {
        On::Here => sweep::run(&request, &stop),
        On::Slurm => {
            let arguments = env::args_os().skip(1).collect();
            slurm::run(&request, &Spread { tasks: args.tasks, arguments }, &stop)
        }
    };
    match finished {
        Ok(Finished::Complete(results)) => {
            eprintln!("==> {} boots in {out}; flatboot-bench show {out}", results.boots.len());
            Ok(0)
        }
        Ok(Finished::Stopped(results)) => {
            let (done, all) = (results.boots.len(), results.sweep.boots_wanted());
            eprintln!("flatboot-bench: stopped: {done} of {all} boots are in {out}; --resume goes on");
            Ok(EXIT_STOPPED)
        }
        Err(error) if stop.is_asked() => {
            eprintln!("flatboot-bench: stopped: {error:#}");
            Ok(EXIT_STOPPED)
        }
        Err(error) => Err(error),
    }
}

/// The observer: its answer is JSON on standard output.
pub(crate) fn observe(args: &ObserveArgs) -> Result<u8> {
    if args.facts {
        writeln!(io::stdout(), "{}", serde_json::to_string(&observe::surroundings(&args.words))?)?;
        return Ok(0);
    }
    let [order] = &*args.words else { bail!("observe: expected one order") };
    let order = serde_json::from_str(order)?;
    writeln!(io::stdout(), "{}", serde_json::to_string(&observe::boots(&order, &*interrupts::interrupted()?)?)?)?;
    Ok(0)
}
