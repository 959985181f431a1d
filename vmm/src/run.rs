// SPDX-License-Identifier: Apache-2.0
//! `flatboot run`: from the configuration to the process's exit status.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::boot::{self, BootError};
use crate::config::{Config, ConfigError, FileError, OutputFile, SerialConfig, VmConfig};
use crate::devices::terminal;
use crate::ending::Ending;
use crate::memory::Size;
use crate::probe::{self, ProbeError};
use crate::stdio;
use crate::timeline::{self, Timeline};

/// Set by flatboot itself when it starts again: how many times it has.
const RESTARTS: &str = "FLATBOOT_RESTARTS";
/// A guest that resets sooner than this...
const SOON: Duration = Duration::from_secs(1);
/// ...waits this long before it starts again: one that does nothing else leaves the host its processors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Why there is no ending to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command line or one of its files.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file to write went away.
    #[error(transparent)]
    Output(#[from] FileError),
    /// The VM did not start.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The guest failed because this host's KVM cannot run guests.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The guest ran, but its timeline is lost.
    #[error("--timeline {path}: cannot be written")]
    Timeline {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The guest asked for a reset and could not be started again.
    #[error("--restart-on-reset: this program cannot be started again")]
    Restart(#[source] io::Error),
}

impl RunError {
    /// Whether the command line alone is wrong, whatever files and hosts there are.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Config(error) => error.is_usage(),
            Self::Boot(BootError::Plan(error)) => error.is_usage(),
            _ => false,
        }
    }
}

/// What is needed after the configuration has been consumed.
struct Aftermath {
    timeline: Option<OutputFile>,
    restart: bool,
    vcpus: u8,
    memory: u64,
}

/// Runs the VM to its end. `zero` is when this process began to execute.
pub fn run(vm: VmConfig, zero: Instant) -> Result<Ending, RunError> {
    let timeline = Arc::new(Timeline::new(zero));
    let mut config = Config::try_from(vm)?;
    timeline.phase("configuration valid");
    let mut after = Aftermath {
        timeline: config.timeline.take(),
        restart: config.restart_on_reset,
        vcpus: config.machine.cpus.boot.get(),
        memory: config.machine.memory.size.bytes(),
    };
    let restarts = restarts().filter(|_| config.restart_on_reset);
    if restarts.is_some()
        && let SerialConfig::File(output) = &mut config.machine.serial
    {
        // What the guest said before it reset is there.
        output.append();
    }
    let control = boot::Control::new();
    let stop = control.stop();
    let ending = boot::run(config, &timeline, control);
    terminal::restore();
    let ending = ending?;
    stdio::tell(&format!("flatboot: {ending}"));
    after.report(&timeline)?;
    if matches!(ending, Ending::Kvm { .. }) {
        // Whether it was the host's fault.
        probe::run()?;
    }
    let pause = if zero.elapsed() < SOON { BACK_OFF } else { Duration::ZERO };
    if after.restart && ending == Ending::Reset && !stop.asked_within(pause) {
        return Err(RunError::Restart(start_again(restarts.unwrap_or(0).saturating_add(1))));
    }
    Ok(ending)
}

impl Aftermath {
    /// Writes the timeline where the user asked for it, and shows it.
    fn report(&mut self, timeline: &Timeline) -> Result<(), RunError> {
        let Some(output) = self.timeline.take() else {
            return Ok(());
        };
        let marks = timeline.marks();
        let path = output.path().display().to_string();
        let mut file = output.commit()?;
        timeline::write_json(&mut file, timeline, self.vcpus, self.memory)
            .map_err(|source| RunError::Timeline { path, source })?;
        let picture = timeline::waterfall(&marks);
        let summary = timeline::summary(&marks, self.vcpus, &Size(self.memory).to_string());
        stdio::tell(&format!("\n{picture}\n{summary}"));
        Ok(())
    }
}

/// How many times the guest has been started again, if it has.
fn restarts() -> Option<u32> {
    env::var(RESTARTS).ok()?.parse().ok()
}

/// Replaces this process by a fresh one with the same arguments: no state of the old VM can survive. Returns only on failure.
fn start_again(restarts: u32) -> io::Error {
    match env::current_exe() {
        Ok(program) => Command::new(program).args(env::args_os().skip(1)).env(RESTARTS, restarts.to_string()).exec(),
        Err(error) => error,
    }
}
