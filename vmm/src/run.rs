// SPDX-License-Identifier: Apache-2.0
//! `flatboot run`: from the configuration to the process's exit status.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::boot::{self, BootError};
use crate::config::{Config, ConfigError, FileError, OutputFile, SerialConfig, VmConfig};
use crate::devices::terminal;
use crate::ending::Ending;
use crate::keeper;
use crate::memory::Size;
use crate::probe::{self, ProbeError};
use crate::sandbox::{self, Jail, JailError, Seccomp};
use crate::stdio;
use crate::timeline::{self, Timeline};

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
    /// There is no jail.
    #[error(transparent)]
    Jail(#[from] JailError),
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

/// What has come of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Whether it is to be started again.
    pub again: bool,
}

/// Runs the VM to its end, its threads in a jail by `seccomp`. `zero` is when this process began to execute.
pub fn run(vm: VmConfig, seccomp: Seccomp, zero: Instant) -> Result<Outcome, RunError> {
    let timeline = Arc::new(Timeline::new(zero));
    // The first of all: what is to come reads files that others have made.
    sandbox::harden()?;
    let mut config = Config::try_from(vm)?;
    timeline.phase("configuration valid");
    let mut after = Aftermath {
        timeline: config.timeline.take(),
        restart: config.restart_on_reset,
        vcpus: config.machine.cpus.boot.get(),
        memory: config.machine.memory.size.bytes(),
    };
    if config.restart_on_reset
        && keeper::has_restarted()
        && let SerialConfig::File(output) = &mut config.machine.serial
    {
        // What the guest said before it reset is there.
        output.append();
    }
    let control = boot::Control::new().in_jail(jail(&config, after.timeline.as_ref(), seccomp)?);
    let (stop, kvm) = (control.stop(), control.kvm());
    let ending = boot::run(config, &timeline, control);
    terminal::restore();
    let ending = ending?;
    stdio::tell(&format!("flatboot: {ending}"));
    after.report(&timeline)?;
    if matches!(ending, Ending::Kvm { .. }) {
        // Whether it was the host's fault.
        probe::run(kvm)?;
    }
    let pause = if zero.elapsed() < SOON { BACK_OFF } else { Duration::ZERO };
    let again = after.restart && ending == Ending::Reset && !stop.asked_within(pause);
    Ok(Outcome { ending, again })
}

/// What the VM's threads enter. From here on, with Landlock, no file that an option names can be opened.
fn jail(config: &Config, timeline: Option<&OutputFile>, seccomp: Seccomp) -> Result<Jail, JailError> {
    let jail = Jail::new(seccomp, terminal::restore)?;
    if !config.landlock {
        return Ok(jail);
    }
    let serial = match &config.machine.serial {
        SerialConfig::File(output) => Some(output),
        SerialConfig::Tty | SerialConfig::Null | SerialConfig::Off => None,
    };
    let outputs: Vec<PathBuf> = serial.into_iter().chain(timeline).map(|output| output.path().to_owned()).collect();
    jail.without_files(&outputs)
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
