// SPDX-License-Identifier: Apache-2.0
//! One guest under flatboot: how it is started, and what it said.
//!
//! The guest is the tiny initramfs ([`crate::initramfs`]), whose init does the checks that the command line asks for and
//! reports each as a line of JSON on the console.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api_boot;
use crate::backend::Session;
use crate::command::{Command, Outcome};

/// What starts every line that the tiny init reports.
const REPORT: &str = "FLATBOOT ";
/// Many checks read it, and the guest kernel has it only on demand.
const DEBUGFS: &str = "debugfs=on";

/// Where a timeline begins: the VMM's exec.
pub const EXEC: &str = "exec";

/// A guest to be started.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Number of vCPUs.
    pub cpus: u16,
    /// More of the value of `--cpus`, from its comma on.
    pub cpu_keys: String,
    /// The value of `--memory`.
    pub memory: String,
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initramfs, if any.
    pub initramfs: Option<PathBuf>,
    /// Firmware that starts the kernel, if any.
    pub firmware: Option<PathBuf>,
    /// What the tiny init is to check: `flatboot.check=`.
    pub checks: String,
    /// More for the kernel command line.
    pub cmdline: String,
    /// More options of `flatboot run`.
    pub options: Vec<OsString>,
    /// Where the timeline goes; must be writable on the host.
    pub timeline: Option<PathBuf>,
    /// The guest is ended after this time.
    pub limit: Duration,
    /// Whether requests to a server start it, in the place of `flatboot run`.
    pub served: bool,
    /// A tap that the host has before it starts, as hosts of a cloud do, whether it uses it or not.
    pub tap: Option<&'static str>,
    /// Disks that the host has before it starts, of its own and empty, whether it uses them or not.
    pub disks: Vec<PathBuf>,
    /// Whether such a VM has been started on the host before it, as on hosts of a cloud.
    pub rehearsed: bool,
}

/// How a guest ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// flatboot's exit status and output.
    pub outcome: Outcome,
    /// What the tiny init reported, in order.
    pub reports: Vec<Value>,
    /// The timeline, if one was asked for and written.
    pub timeline: Option<Timeline>,
}

/// What `flatboot run --timeline` writes, as far as measurements need it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timeline {
    /// Nanoseconds from the VMM's exec to init; none if the guest reported no mark.
    pub init_ns: Option<u64>,
    /// Its zero, the VMM's exec, on `CLOCK_MONOTONIC`.
    pub zero_monotonic_ns: u64,
    /// All marks, in time order.
    pub marks: Vec<Mark>,
}

/// One moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mark {
    /// Nanoseconds since the VMM's exec.
    pub ns: u64,
    /// Page faults that the host had served for the VMM until then, if somebody has counted them.
    pub host_faults: Option<u64>,
    /// What was reached.
    pub name: String,
    /// Who says so, if that is known: `vmm` or `guest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Mark {
    /// Whether the guest says so.
    pub(crate) fn is_of_guest(&self) -> bool {
        self.source.as_deref() == Some("guest")
    }
}

impl Guest {
    /// A guest with 2 vCPUs and 1 GiB that boots `kernel` with `initramfs`.
    #[must_use]
    pub fn new(kernel: &Path, initramfs: &Path) -> Self {
        Self {
            cpus: 2,
            cpu_keys: String::new(),
            memory: "size=1G".to_owned(),
            kernel: kernel.to_path_buf(),
            initramfs: Some(initramfs.to_path_buf()),
            firmware: None,
            checks: String::new(),
            cmdline: String::new(),
            options: Vec::new(),
            timeline: None,
            limit: Duration::from_secs(600),
            served: false,
            tap: None,
            disks: Vec::new(),
            rehearsed: false,
        }
    }

    /// The same with another number of vCPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u16) -> Self {
        self.cpus = cpus;
        self
    }

    /// The same with another value of `--memory`.
    #[must_use]
    pub fn memory(mut self, memory: &str) -> Self {
        memory.clone_into(&mut self.memory);
        self
    }

    /// The same with checks for the tiny init.
    #[must_use]
    pub fn checks(mut self, checks: &str) -> Self {
        checks.clone_into(&mut self.checks);
        self
    }

    /// The same with more on the kernel command line.
    #[must_use]
    pub fn cmdline(mut self, cmdline: &str) -> Self {
        if !self.cmdline.is_empty() {
            self.cmdline.push(' ');
        }
        self.cmdline.push_str(cmdline);
        self
    }

    /// The same with more options of `flatboot run`.
    #[must_use]
    pub fn options<O: Into<OsString>>(mut self, options: impl IntoIterator<Item = O>) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// The same with a timeline in `file`.
    #[must_use]
    pub fn timeline(mut self, file: &Path) -> Self {
        self.timeline = Some(file.to_path_buf());
        self
    }

    /// What flatboot reads to start it.
    pub fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [Some(&mut self.kernel), self.initramfs.as_mut(), self.firmware.as_mut()].into_iter().flatten()
    }

    /// `flatboot run …` for this guest, or what stands in its place.
    #[must_use]
    pub fn command(&self, flatboot: &Path) -> Command {
        let checks =
            if self.checks.is_empty() { String::new() } else { format!(" \"flatboot.check={}\"", self.checks) };
        let mut command = Command::new(flatboot)
            .args(["run", "--cpus", &format!("boot={}{}", self.cpus, self.cpu_keys), "--memory", &self.memory])
            .arg("--kernel")
            .arg(&self.kernel)
            .args(["--cmdline", &format!("quiet {DEBUGFS} {}{checks}", self.cmdline)])
            .args(self.options.iter().cloned())
            .timeout(self.limit);
        let files = [("--firmware", &self.firmware), ("--initramfs", &self.initramfs), ("--timeline", &self.timeline)];
        for (option, file) in files {
            if let Some(file) = file {
                command = command.arg(option).arg(file);
            }
        }
        if self.served { api_boot::instead_of(command) } else { command }
    }

    /// Runs it to its end.
    pub fn run(&self, session: &mut Session, flatboot: &Path) -> Result<Ended> {
        if let Some(timeline) = &self.timeline {
            // One of an earlier run is not of this one.
            let _ = fs::remove_file(timeline);
        }
        let outcome = session.run(&self.command(flatboot))?;
        let reports = reports(&outcome.stdout_text());
        let timeline = self.timeline.as_deref().filter(|path| path.exists()).map(read_timeline).transpose()?;
        Ok(Ended { outcome, reports, timeline })
    }
}

/// What the tiny init reported on that console, in order.
#[must_use]
pub fn reports(console: &str) -> Vec<Value> {
    // Kernel messages may share a line with a report; the JSON ends the line.
    let parts = console.lines().filter_map(|line| line.split_once(REPORT));
    parts.filter_map(|(_, json)| serde_json::from_str(json.trim_end()).ok()).collect()
}

fn read_timeline(path: &Path) -> Result<Timeline> {
    let read = || serde_json::from_slice(&fs::read(path)?).map_err(io::Error::from);
    read().with_context(|| format!("timeline {}", path.display()))
}

impl Ended {
    /// What the tiny init reported of the check `name`.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<&Value> {
        self.reports.iter().find(|report| report["check"] == name)
    }

    /// Why it did not pass, as well as can be told: the first check that failed, else the last that flatboot said.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let failed = self.reports.iter().find(|report| report["ok"] == false).map(Value::to_string);
        failed.or_else(|| String::from_utf8_lossy(&self.outcome.stderr).lines().next_back().map(str::to_owned))
    }

    /// Whether the guest powered off after all its checks had passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.outcome.code == 0 && self.report("done").is_some_and(|done| done["ok"] == true)
    }
}

impl Timeline {
    /// When `name`, or [`EXEC`], was first reached, in nanoseconds since the VMM's exec.
    #[must_use]
    pub fn at(&self, name: &str) -> Option<u64> {
        if name == EXEC {
            return Some(0);
        }
        self.marks.iter().find(|mark| mark.name == name).map(|mark| mark.ns)
    }

    /// Nanoseconds from one mark to another.
    #[must_use]
    pub fn between(&self, from: &str, to: &str) -> Option<u64> {
        self.at(to)?.checked_sub(self.at(from)?)
    }

    /// Page faults of the VMM from one mark to another.
    #[must_use]
    pub fn faults_between(&self, from: &str, to: &str) -> Option<u64> {
        let mark = |name: &str| self.marks.iter().find(|mark| mark.name == name)?.host_faults;
        let at = |name: &str| if name == EXEC { Some(0) } else { mark(name) };
        at(to)?.checked_sub(at(from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_found_among_kernel_messages() {
        let console =
            "[ 0.1] x\r\nFLATBOOT {\"check\":\"a\",\"ok\":true}\r\n[ 1] yFLATBOOT {\"check\":\"b\"}\nFLATBOOT {bad\n";
        let found = reports(console);
        assert_eq!(found.len(), 2);
        assert_eq!((&found[0]["check"], &found[1]["check"]), (&Value::from("a"), &Value::from("b")));
    }

    #[test]
    fn the_command_has_what_was_asked_for() {
        let guest = Guest::new(Path::new("/k"), Path::new("/i")).cpus(3).memory("size=5G").checks("a,b").cmdline("x=1");
        let command = guest.options(["--disk", "path=/d"]).command(Path::new("/flatboot"));
        let words: Vec<_> = command.args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let expected = "run|--cpus|boot=3|--memory|size=5G|--kernel|/k|--cmdline|quiet debugfs=on x=1 \"flatboot.check=a,b\"|--disk|path=/d|--initramfs|/i";
        assert_eq!(words.join("|"), expected);
    }
}
