// SPDX-License-Identifier: Apache-2.0
//! A VM that runs, and how it is asked.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::order::{Change, Changed, Control, Machine};
use super::qmp::Qmp;
use crate::guest::reports;
use crate::http;
use crate::observe::{Interrupted, Vmm, now_ns};

/// How long a VM may take to come up, to change its size, and to say what is waited for.
const LIMIT: Duration = Duration::from_secs(240);
/// How long it may take to end when it is asked to.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// What a guest that has just come up, or has changed its size, still does: nobody waits for it, and it takes a processor.
const REST: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

/// A VM, ended when this is dropped.
pub(super) struct Running<'a> {
    machine: &'a Machine,
    interrupted: &'a Interrupted,
    vmm: Vmm,
    stderr: File,
    qmp: Option<Qmp>,
}

impl<'a> Running<'a> {
    /// Starts it and waits until it is ready.
    pub(super) fn start(machine: &'a Machine, interrupted: &'a Interrupted) -> Result<Self> {
        let socket = match &machine.control {
            Control::Flatboot { socket, .. } | Control::Qmp { socket, .. } => socket,
        };
        for file in [socket, &machine.console] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => bail!("{}: {error}", file.display()),
                _ => {}
            }
        }
        let stderr = tempfile::tempfile().context("a temporary file")?;
        let mut command = Command::new(&machine.program);
        command.args(&machine.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
        let vmm = Vmm(command.spawn().with_context(|| machine.program.clone())?);
        let mut running = Self { machine, interrupted, vmm, stderr, qmp: None };
        running.until_said(&machine.ready, 1)?;
        if let Control::Qmp { socket, device } = &machine.control {
            running.qmp = Some(Qmp::connect(socket, device)?);
        }
        thread::sleep(REST);
        Ok(running)
    }

    /// Changes its size, waits for what its guest then says, and for rest.
    pub(super) fn change(&mut self, change: &Change) -> Result<Changed> {
        let said = change.then.as_ref().map_or(0, |word| self.said(word));
        let asked_ns = now_ns();
        self.ask(change.bytes).with_context(|| change.name.clone()).map_err(|error| anyhow::anyhow!("{error:#}"))?;
        let done_ns = now_ns();
        if let Some(word) = &change.then {
            self.until_said(word, said + 1).with_context(|| change.name.clone())?;
        }
        thread::sleep(REST);
        Ok(Changed { name: change.name.clone(), asked_ns, done_ns })
    }

    /// Returns when the guest has `bytes` beyond what it was booted with.
    fn ask(&mut self, bytes: u64) -> Result<()> {
        if let Some(qmp) = &mut self.qmp {
            return qmp.resize(bytes, LIMIT);
        }
        let Control::Flatboot { socket, size } = &self.machine.control else { bail!("no connection") };
        let body = format!("{{\"desired_ram\": {}}}", size + bytes);
        http::put(socket, "vm.resize", &body, LIMIT).map_err(Error::msg)
    }

    fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.machine.console).unwrap_or_default()).into_owned()
    }

    /// How often the console has said `word`.
    fn said(&self, word: &str) -> usize {
        self.console().matches(word).count()
    }

    /// No check of the guest has failed: what was measured would be of something else.
    fn has_passed(&self) -> Result<()> {
        let failed = reports(&self.console()).into_iter().find(|report| report["ok"] == false);
        failed.map_or(Ok(()), |report| bail!("{}: a check of the guest failed: {report}", self.machine.program))
    }

    fn until_said(&mut self, word: &str, times: usize) -> Result<()> {
        let since = Instant::now();
        while self.said(word) < times {
            ensure!(!self.interrupted.load(Ordering::SeqCst), "interrupted");
            if let Some(status) = self.vmm.0.try_wait()? {
                bail!("{}: {status} before its console said {word:?}: {}", self.machine.program, self.complaint());
            }
            ensure!(since.elapsed() < LIMIT, "{}: no {word:?} on its console in time", self.machine.program);
            thread::sleep(LOOK);
        }
        self.has_passed()
    }

    /// The last line of its standard error.
    fn complaint(&mut self) -> String {
        let mut said = Vec::new();
        let _ = self.stderr.seek(SeekFrom::Start(0)).and_then(|_| self.stderr.read_to_end(&mut said));
        String::from_utf8_lossy(&said).lines().next_back().unwrap_or("it said nothing").to_owned()
    }

    /// Has it end, so that it writes what it writes at its end.
    pub(super) fn end(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.vmm.0), Signal::TERM).context("SIGTERM")?;
        let since = Instant::now();
        while self.vmm.0.try_wait()?.is_none() {
            ensure!(since.elapsed() < LAST_WORDS, "{}: does not end", self.machine.program);
            thread::sleep(LOOK);
        }
        self.has_passed()
    }
}
