// SPDX-License-Identifier: Apache-2.0
//! Puts promises to the test, one after another, a line for each.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use anstyle::Style;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use tempfile::TempDir;

use super::bench::Bench;
use super::outcome::{Outcome, Status};
use super::promise::{Promise, Proof, SECTIONS};
use super::promises::PROMISES;
use super::samples::Samples;
use super::speed::{Claim, Source};
use super::stop::Stop;
use super::sweeps::{self, SweepClaim};
use super::{cargo, script};
use crate::command::EXIT_HOST;
use crate::json_file;
use crate::progress::{Progress, clock};
use crate::terminal::bytes;

/// Exit code when a promise is missed.
const EXIT_MISSED: u8 = 1;
/// A claim of speed is made from so many runs, or more.
const RUNS_OF_A_CLAIM: usize = 10;
const OUTPUT: &str = "standard output cannot be written";
/// Columns of the lines.
const PROMISED: usize = 18;
const MEASURED: usize = 40;

/// What is asked for.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Names of promises or sections (speed, size, limits, behaviour) [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Samples of each variant of a speed promise, in addition to the first, which is dropped; and rounds of what tests time, unless
    /// the environment variable `FLATBOOT_TIMES` says how many
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub runs: usize,
    /// Print the promises with the command that tests each, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Print details of promises that hold, too
    #[arg(long)]
    pub details: bool,
    /// Directory for raw samples and the output of tests
    #[arg(long, value_name = "DIR", default_value = "target/spec")]
    pub keep: PathBuf,
}

/// What was asked for makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(String);

/// The promises that `names` means, in the order of the document.
fn choose(names: &[String]) -> Result<Vec<&'static Promise>> {
    let is = |promise: &Promise, name: &String| promise.name == name || promise.section() == name;
    if let Some(unknown) = names.iter().find(|name| !PROMISES.iter().any(|promise| is(promise, name))) {
        let names: Vec<_> = PROMISES.iter().map(|promise| promise.name).collect();
        let (names, sections) = (names.join(", "), SECTIONS.join(", "));
        bail!(Misuse(format!("spec {unknown}: no such promise; there are: {names}, and the sections {sections}")));
    }
    Ok(PROMISES.iter().filter(|promise| names.is_empty() || names.iter().any(|name| is(promise, name))).collect())
}

/// Prints the promises that `names` means, each with the command that fails when it is broken.
pub fn list(names: &[String], out: &mut impl Write) -> Result<()> {
    let bold = Style::new().bold();
    for promise in choose(names)? {
        writeln!(out, "{bold}{}{bold:#}\n  {}\n  {}", promise.name, promise.text(), promise.command())
            .context(OUTPUT)?;
    }
    Ok(())
}

/// Puts promises to the test and prints a line for each, and what they come to.
///
/// Gives the exit code: 0 if all that can be tested here hold, 1 if one is missed, 125 if one could not be tested for
/// another reason than that this machine lacks something, 128 + n after signal n.
pub fn run(options: &Options, out: &mut impl Write) -> Result<u8> {
    if !(1..=1000).contains(&options.runs) {
        let runs = options.runs;
        bail!(Misuse(format!("--runs {runs}: must be 1 to 1000 (claims are made from {RUNS_OF_A_CLAIM} or more)")));
    }
    let chosen = choose(&options.names)?;
    let keep = || cannot_write(&options.keep);
    fs::create_dir_all(&options.keep).with_context(keep)?;
    // Its children must not be told apart by where they were started from.
    let options = Options { keep: options.keep.canonicalize().with_context(keep)?, ..options.clone() };

    let stop = Stop::catch().context("cannot handle signals")?;
    let scratch = tempfile::Builder::new().prefix("flatboot-spec-").tempdir();
    let scratch = scratch.with_context(|| cannot_write(&std::env::temp_dir()))?;
    let mut runner = Runner { options: &options, stop, scratch, bench: None };
    let result = runner.all(&chosen, out);
    if let Some(signal) = runner.stop.signal() {
        // Nothing that still runs finds its files gone.
        Stop::settle();
        eprintln!("==> stopped by signal {signal}");
        return Ok(u8::try_from(128 + signal).unwrap_or(EXIT_HOST));
    }
    result
}

/// Puts one promise after another to the test.
struct Runner<'a> {
    options: &'a Options,
    stop: Stop,
    scratch: TempDir,
    /// Found when it is first needed; why not, if that failed.
    bench: Option<Result<Bench, String>>,
}

impl Runner<'_> {
    fn all(&mut self, chosen: &[&Promise], out: &mut impl Write) -> Result<u8> {
        let since = Instant::now();
        let mut section = None;
        let mut outcomes = Vec::new();
        for (index, promise) in chosen.iter().enumerate() {
            let label = format!("({} of {}) {}", index + 1, chosen.len(), promise.name);
            let progress = Progress::begin(label);
            let outcome = self.prove(promise, &progress);
            let took = progress.elapsed();
            drop(progress);
            if self.stop.signal().is_some() {
                break;
            }
            match Stop::end_leftovers() {
                0 => {}
                left => eprintln!("==> {}: left {left} processes running, which were ended", promise.name),
            }
            if section.replace(promise.section()) != Some(promise.section()) {
                heading(promise.section(), out).context(OUTPUT)?;
            }
            line(promise, &outcome, took, out).context(OUTPUT)?;
            let is_plain = matches!(outcome.status, Status::Held | Status::HeldInPart(_) | Status::CannotHere(_));
            if self.options.details || !is_plain {
                details(&outcome, out).context(OUTPUT)?;
            }
            outcomes.push(outcome);
        }
        if !outcomes.is_empty() {
            self.summary(chosen, &outcomes, since.elapsed(), out).context(OUTPUT)?;
        }
        Ok(exit_code(&outcomes))
    }

    fn prove(&mut self, promise: &Promise, progress: &Progress) -> Outcome {
        let outcome = match &promise.proof {
            Proof::Tests(arguments) => return self.tests(promise.name, arguments, None, progress),
            Proof::Timed(arguments) => {
                return self.tests(promise.name, arguments, Some(self.options.runs), progress);
            }
            Proof::Script(path) => {
                let log = self.options.keep.join(format!("{}.log", promise.name));
                return script::run(path, &log);
            }
            Proof::Speed(claim) => self.speed(promise.name, claim, progress),
            Proof::Sweep(claim) => self.sweep(promise.name, claim, progress),
            Proof::Footprint { kib } => self.footprint(*kib, progress),
            Proof::Program { mib } => self.program(*mib, progress),
        };
        outcome.unwrap_or_else(|error| Outcome::not_run(format!("{error:#}")))
    }

    fn tests(&self, name: &str, arguments: &[&str], rounds: Option<usize>, progress: &Progress) -> Outcome {
        let log = self.options.keep.join(format!("{name}.log"));
        cargo::test(arguments, rounds, &log, self.scratch.path(), progress)
    }

    fn sweep(&self, name: &str, claim: &SweepClaim, progress: &Progress) -> Result<Outcome> {
        let file = sample_file(name, &self.options.keep);
        let arguments = claim.arguments();
        progress.show(&format!("flatboot-bench run {}", arguments.join(" ")));
        let mut outcome = claim.judge(&sweeps::run(&arguments, claim.rounds(self.options.runs), &file)?)?;
        outcome.details.push(format!("raw samples: {}", file.display()));
        Ok(outcome)
    }

    fn footprint(&mut self, bound: u64, progress: &Progress) -> Result<Outcome> {
        let bench = open(&mut self.bench, self.scratch.path(), progress)?;
        let guest = bench.guest("guest")?;
        progress.show("one guest with 1 vCPU and 128 MiB");
        let kib = bench.footprint(guest)?;
        let status = if kib <= bound { Status::Held } else { Status::Missed };
        Ok(Outcome { status, measured: format!("{kib} KiB"), details: vec![bench.backend().to_string()] })
    }

    fn program(&mut self, bound: u64, progress: &Progress) -> Result<Outcome> {
        let bench = open(&mut self.bench, self.scratch.path(), progress)?;
        let size = bench.size_of_flatboot()?;
        let status = if size <= bound << 20 { Status::Held } else { Status::Missed };
        Ok(Outcome { status, measured: bytes(size), details: Vec::new() })
    }

    fn speed(&mut self, name: &str, claim: &Claim, progress: &Progress) -> Result<Outcome> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        if cpus < claim.cpus {
            return Ok(Outcome::cannot_here(format!("it takes {} processors, there is {cpus}", claim.cpus)));
        }
        let runs = self.options.runs.saturating_mul(claim.rounds);
        let bench = open(&mut self.bench, self.scratch.path(), progress)?;
        let mut samples = Samples::default();
        let measured = match claim.source {
            Source::Boots(variants) => bench.measure(&variants(bench)?, runs, (&self.stop, progress), &mut samples),
            Source::Changes(changes) => {
                changes(bench, runs + 1)?.measure(bench, progress).map(|measured| samples = measured)
            }
        };
        // Whatever they say, and however far it came.
        let file = sample_file(name, &self.options.keep);
        json_file::write(&samples, &file)?;
        measured?;
        let mut outcome = claim.judge(&samples, runs);
        outcome.details.push(format!("{}; raw samples: {}", bench.backend(), file.display()));
        Ok(outcome)
    }

    fn summary(
        &self,
        chosen: &[&Promise],
        outcomes: &[Outcome],
        took: Duration,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let count = |is: fn(&Status) -> bool| outcomes.iter().filter(|outcome| is(&outcome.status)).count();
        let held = count(|status| matches!(status, Status::Held | Status::HeldInPart(_)));
        let missed = count(|status| *status == Status::Missed);
        let took = clock(took);
        let keep = self.options.keep.display();
        writeln!(out, "\n{held} held, {missed} missed, {} not run, in {took}", outcomes.len() - held - missed)?;
        writeln!(out, "raw samples and what the tests said: {keep}")?;
        let is_timed =
            |promise: &&Promise| matches!(promise.proof, Proof::Speed(_) | Proof::Sweep(_) | Proof::Timed(_));
        if self.options.runs < RUNS_OF_A_CLAIM && chosen.iter().any(is_timed) {
            writeln!(
                out,
                "fewer than {RUNS_OF_A_CLAIM} runs: a trial, speed is claimed from {RUNS_OF_A_CLAIM} or more"
            )?;
        }
        Ok(())
    }
}

/// What boots need, found when it is first needed.
fn open<'a>(bench: &'a mut Option<Result<Bench, String>>, scratch: &Path, progress: &Progress) -> Result<&'a Bench> {
    let open = || {
        // The kernels' build writes lines of its own.
        progress.aside(|| {
            eprintln!("==> looking for flatboot, KVM and kernels");
            Bench::open(scratch).map_err(|error| format!("{error:#}"))
        })
    };
    bench.get_or_insert_with(open).as_ref().map_err(|why| anyhow!("{why}"))
}

fn exit_code(outcomes: &[Outcome]) -> u8 {
    let any = |is: fn(&Status) -> bool| outcomes.iter().any(|outcome| is(&outcome.status));
    if any(|status| *status == Status::Missed) {
        EXIT_MISSED
    } else if any(|status| matches!(status, Status::NotRun(_))) {
        EXIT_HOST
    } else {
        0
    }
}

fn heading(section: &str, out: &mut impl Write) -> io::Result<()> {
    let bold = Style::new().bold();
    writeln!(out, "\n{bold}{}{}{bold:#}", section[..1].to_uppercase(), &section[1..])
}

fn line(promise: &Promise, outcome: &Outcome, took: Duration, out: &mut impl Write) -> io::Result<()> {
    let width = PROMISES.iter().map(|promise| promise.name.len()).max().unwrap_or(0);
    let (words, style) = outcome.status.words();
    let dim = Style::new().dimmed();
    writeln!(
        out,
        "  {:<width$}  {:<PROMISED$}  {:<MEASURED$}  {style}{words}{style:#}  {dim}{}{dim:#}",
        promise.name,
        promise.in_short(),
        outcome.measured,
        clock(took)
    )
}

fn details(outcome: &Outcome, out: &mut impl Write) -> io::Result<()> {
    outcome.details.iter().try_for_each(|line| writeln!(out, "      {line}"))
}

fn sample_file(name: &str, directory: &Path) -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    directory.join(format!("{name}-{seconds}.json.zst"))
}

fn cannot_write(path: &Path) -> String {
    format!("{}: cannot be written", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: Status) -> Outcome {
        Outcome { status, measured: String::new(), details: Vec::new() }
    }

    #[test]
    fn names_and_sections_choose() {
        let chosen = |names: &[&str]| choose(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&[]).unwrap().len(), PROMISES.len());
        let names: Vec<_> = chosen(&["size", "deferred-holes"]).unwrap().iter().map(|promise| promise.name).collect();
        assert_eq!(names, ["deferred-holes", "footprint", "program", "ondemand-memory", "ondemand-memory-1000g"]);
        let error = chosen(&["size", "nothing"]).unwrap_err();
        assert!(error.is::<Misuse>());
        assert!(error.to_string().starts_with("spec nothing: no such promise; there are: flat-256g, "));
    }

    #[test]
    fn the_exit_code_tells_missed_from_not_run() {
        let cannot = || outcome(Status::CannotHere("x".to_owned()));
        let failed = || outcome(Status::NotRun("x".to_owned()));
        let (held, missed) = (|| outcome(Status::Held), || outcome(Status::Missed));
        assert_eq!(exit_code(&[held(), cannot()]), 0);
        assert_eq!(exit_code(&[held(), failed(), cannot()]), EXIT_HOST);
        assert_eq!(exit_code(&[failed(), missed(), held()]), EXIT_MISSED);
    }
}
