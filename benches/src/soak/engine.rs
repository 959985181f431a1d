// SPDX-License-Identifier: Apache-2.0
//! The soak itself: hosts side by side, each with one boot after another.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use rustix::process::Signal;
use tempfile::TempDir;

use super::order::{Order, Seen};
use super::plan::Plan;
use super::tally::Tally;
use super::{judge, log};
use crate::backend::{Backend, Session};
use crate::command::Command;
use crate::host::HostOptions;
use crate::progress::Progress;
use crate::sweep::Stop;
use crate::{artifact, initramfs};

/// Enough for the largest memmap that is filled, and little enough for several hosts on one machine.
const HOST_MIB: u64 = 6 << 10;
/// A host gets a successor after so many boots: guests in an old one are slow.
const BOOTS_OF_A_HOST: u64 = 25;
/// On a loaded machine a host dies at its start now and then, for its timers seem not to run; so many in a row mean that
/// none starts.
const STARTS: u32 = 4;
/// What the attendant may need besides the boot.
const OVERHEAD: Duration = Duration::from_secs(120);

/// What a user asks for.
#[derive(Debug, Clone, Args)]
pub struct Request {
    /// Start boots for this time [default: 600, or no limit with --boots]
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Maximum number of boots
    #[arg(long, value_name = "N")]
    pub boots: Option<u64>,
    // Short enough to be typed.
    /// Seed of the first boot; later boots use the following numbers [default: random]
    #[arg(long, value_name = "S", default_value_t = u64::from(fastrand::u32(..)), hide_default_value = true)]
    pub seed: u64,
    /// Hosts that run in parallel
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub hosts: u8,
    /// A boot that has not ended after this time has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub timeout: u32,
    /// Directory for the console output of failed boots
    #[arg(long, value_name = "DIR", default_value = "target/soak")]
    pub keep: PathBuf,
}

impl Request {
    /// No boot begins after so long.
    fn time(&self) -> Option<Duration> {
        self.seconds.or(self.boots.is_none().then_some(600)).map(Duration::from_secs)
    }
}

/// What has come of a boot: the line to print if it has failed.
type Told = std::result::Result<(), String>;

/// Boots until time is up, a stop is asked for, or there is no host. Failures and the sum of all are told on `out`.
pub fn run(request: &Request, stops: &[Stop], out: &mut dyn Write) -> Result<Tally> {
    let bench = Bench::open(request)?;
    eprintln!("==> {}", bench.backend);
    eprintln!(
        "==> from seed {}, {} at a time; logs of failures: {}",
        request.seed,
        request.hosts,
        request.keep.display()
    );
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let bench = &bench;
        let of = |(number, stop)| {
            let sender = sender.clone();
            let tap = tap(number);
            scope.spawn(move || Worker { bench, stop, tap, session: None, boots: 0 }.work(&sender))
        };
        let workers: Vec<_> = stops.iter().enumerate().map(of).collect();
        drop(sender);
        let tally = follow(&receiver, out)?;
        // Said whatever has ended the workers: hours may be in it.
        writeln!(out, "{tally}").context("standard output")?;
        let ended = workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(())));
        ended.collect::<Result<(), _>>().map(|()| tally)
    })
}

/// What all workers share.
struct Bench<'a> {
    request: &'a Request,
    since: Instant,
    backend: Backend,
    own: PathBuf,
    flatboot: PathBuf,
    kernel: PathBuf,
    options: HostOptions,
    next: AtomicU64,
    /// The initramfs.
    scratch: TempDir,
}

impl<'a> Bench<'a> {
    fn open(request: &'a Request) -> Result<Self> {
        let keep = || format!("--keep {}: cannot be written to", request.keep.display());
        fs::create_dir_all(&request.keep).with_context(keep)?;
        let flatboot = artifact::needed_flatboot(None)?;
        let kernel = artifact::kernel("guest")?.join("vmlinux");
        let backend = Backend::open(Some(&flatboot))?;
        let scratch = tempfile::Builder::new().prefix("flatboot-soak-").tempdir().context("temporary directory")?;
        initramfs::write_guest(&scratch.path().join("tiny.cpio"))?;
        let options = HostOptions { kernel: backend.host_kernel()?, memory_mib: HOST_MIB, ..HostOptions::default() };
        let own = env::current_exe().context("temporary directory")?;
        Ok(Self { request, since: Instant::now(), backend, own, flatboot, kernel, options, next: 0.into(), scratch })
    }

    /// The next boot, if there is to be one.
    fn next(&self) -> Option<Plan> {
        if self.request.time().is_some_and(|time| self.since.elapsed() >= time) {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::SeqCst);
        let wanted = self.request.boots.is_none_or(|boots| index < boots);
        wanted.then(|| Plan::of(self.request.seed.wrapping_add(index)))
    }
}

/// Counts what workers tell until the last of them is gone.
fn follow(told: &Receiver<Told>, out: &mut dyn Write) -> Result<Tally> {
    let mut tally = Tally::default();
    let progress = Progress::begin("soak".to_owned());
    for told in told {
        tally.count(told.is_ok());
        if let Err(line) = told {
            progress.aside(|| writeln!(out, "{line}").and_then(|()| out.flush())).context("standard output")?;
        }
        progress.show(&tally.to_string());
    }
    Ok(tally)
}

/// What the taps of a worker's VMs are called, one after another: on this machine's KVM all workers share a host, and perhaps with
/// another soak.
fn tap(worker: usize) -> String {
    format!("soak{}-{worker}", std::process::id())
}

/// One host after another, and their boots.
struct Worker<'a> {
    bench: &'a Bench<'a>,
    stop: &'a Stop,
    tap: String,
    session: Option<Session>,
    /// Of this host.
    boots: u64,
}

impl Worker<'_> {
    /// An error is that there is no host.
    fn work(mut self, tell: &Sender<Told>) -> Result<()> {
        while !self.stop.is_asked() {
            let Some(plan) = self.bench.next() else { break };
            let Some(told) = self.boot(&plan)? else { break };
            if tell.send(told).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// None if a stop came meanwhile: whatever came of the boot was the stop's doing.
    fn boot(&mut self, plan: &Plan) -> Result<Option<Told>> {
        let bench = self.bench;
        let order = Order::of(
            plan,
            &bench.flatboot,
            &bench.kernel,
            &bench.scratch.path().join("tiny.cpio"),
            &self.tap,
            Duration::from_secs(bench.request.timeout.into()),
        );
        let (seen, wrong) = match self.attended(&order)? {
            Ok(seen) => {
                let wrong = judge(plan, &seen);
                (seen, wrong)
            }
            Err(why) => (Seen::default(), vec![why]),
        };
        if self.stop.is_asked() {
            return Ok(None);
        }
        if wrong.is_empty() {
            return Ok(Some(Ok(())));
        }
        // Whatever it was may have been the host's doing, or may be the next boot's undoing.
        self.session = None;
        let kept = log::keep(&bench.request.keep, plan, &order, &seen, &wrong);
        let log = kept.map_or_else(|error| format!("not kept: {error}"), |path| path.display().to_string());
        Ok(Some(Err(format!("FAILED seed {}: {plan}: {}; log: {log}", plan.seed, wrong.join("; ")))))
    }

    /// What the attendant has seen, or why there is nothing; an error if no host starts.
    fn attended(&mut self, order: &Order) -> Result<std::result::Result<Seen, String>> {
        let json = serde_json::to_string(order)?;
        let limit = Duration::from_millis(order.limit_ms) + OVERHEAD;
        let command = Command::new(&self.bench.own).arg("attend").arg(json).timeout(limit);
        let mut session = self.host()?;
        self.stop.guard(session.control(), Signal::TERM.as_raw());
        let outcome = session.run(&command);
        self.stop.release();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Err(format!("the host failed: {:#}", anyhow!(error)))),
        };
        self.session = Some(session);
        let said = || String::from_utf8_lossy(&outcome.stderr).trim().to_owned();
        let seen = serde_json::from_slice(&outcome.stdout);
        Ok(seen.map_err(|_| format!("no attendant: exit code {}: {}", outcome.code, said())))
    }

    /// The host there is, or the next one.
    fn host(&mut self) -> Result<Session> {
        self.boots += 1;
        if let Some(session) = self.session.take().filter(|_| self.boots <= BOOTS_OF_A_HOST) {
            return Ok(session);
        }
        self.boots = 1;
        let mut starts = 1;
        loop {
            match self.bench.backend.start(&self.bench.options) {
                Err(error) if starts < STARTS && !self.stop.is_asked() => {
                    starts += 1;
                    eprintln!("==> a host did not start, another one is: {:#}", anyhow!(error));
                }
                result => return Ok(result?),
            }
        }
    }
}
