// SPDX-License-Identifier: Apache-2.0
//! `flatboot run`, and flatboot as a server: from a configuration, or none yet, to the process's exit status.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use crate::api::{Api, ApiError, Listen};
use crate::config::{ConfigError, VmConfig};
use crate::devices::terminal;
use crate::ending::Ending;
use crate::events::{Events, Monitor};
use crate::probe::{self, ProbeError};
use crate::stdio;
use crate::vmm::{Origin, Over, Restart, TimelineError, Vmm, VmmError};

/// Set by flatboot itself when it starts again: how many times it has.
const RESTARTS: &str = "FLATBOOT_RESTARTS";

/// Why there is no ending to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command line or one of its files.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The VM did not start.
    #[error(transparent)]
    Vmm(#[from] VmmError),
    /// Nobody can ask anything.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Nobody can watch.
    #[error("--event-monitor: cannot be written to")]
    Events(#[source] io::Error),
    /// Signals cannot be handled.
    #[error("signals cannot be handled")]
    Signals(#[source] io::Error),
    /// The guest failed because this host's KVM cannot run guests.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The guest ran, but its timeline is lost.
    #[error(transparent)]
    Timeline(#[from] TimelineError),
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
            Self::Vmm(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// Who else has a say in what happens, and who watches.
#[derive(Debug, Default)]
pub struct Outside {
    /// Where requests come from.
    pub api: Option<Listen>,
    /// Where events go.
    pub events: Option<std::fs::File>,
}

/// Runs the VM to its end, or serves until there is nothing more to serve: then there may be no ending. `zero` is when this
/// process began to execute.
pub fn run(vm: Option<VmConfig>, outside: Outside, zero: Instant) -> Result<Option<Ending>, RunError> {
    let (events, monitor) = watched(outside.events, zero)?;
    events.vmm("starting");
    let result = with_events(vm, outside.api, &events, zero);
    events.vmm("shutdown");
    drop(events);
    if let Some(monitor) = monitor {
        monitor.finish();
    }
    result
}

fn watched(file: Option<std::fs::File>, zero: Instant) -> Result<(Events, Option<Monitor>), RunError> {
    let Some(file) = file else { return Ok((Events::default(), None)) };
    let (events, monitor) = Events::to(file, zero).map_err(RunError::Events)?;
    Ok((events, Some(monitor)))
}

fn with_events(
    vm: Option<VmConfig>,
    listen: Option<Listen>,
    events: &Events,
    zero: Instant,
) -> Result<Option<Ending>, RunError> {
    // What serves others cannot make place for a fresh process.
    let restart = if listen.is_some() { Restart::Here } else { Restart::Outside };
    let mut vmm = Vmm::new(restart, events.clone());
    let api = listen.map(|listen| Api::start(listen, vmm.caller())).transpose()?;
    if let Some(api) = &api {
        // Whenever a signal comes, the socket has to go.
        vmm.listen(api.remover()).map_err(RunError::Signals)?;
    }
    let restarts = restarts();
    let result = own(vmm, vm, Origin { zero: Some(zero), again: restarts.is_some() });
    drop(api);
    terminal::restore();
    let Some(over) = result? else { return Ok(None) };
    let Over { ending, aftermath, again } = over;
    stdio::tell(&format!("flatboot: {ending}"));
    aftermath.report()?;
    if matches!(ending, Ending::Kvm { .. }) {
        // Whether it was the host's fault.
        probe::run()?;
    }
    if again {
        return Err(RunError::Restart(start_again(restarts.unwrap_or(0).saturating_add(1))));
    }
    Ok(Some(ending))
}

/// Starts `vm`, if there is one already, and stays until there is nothing more to do.
fn own(mut vmm: Vmm, vm: Option<VmConfig>, origin: Origin) -> Result<Option<Over>, VmmError> {
    if let Some(vm) = vm {
        let again = origin.again && vm.restart_on_reset();
        vmm.create(vm)?;
        vmm.boot(Origin { again, ..origin })?;
    }
    vmm.serve()
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
