// SPDX-License-Identifier: Apache-2.0
//! `flatboot run`, and flatboot as a server: from a configuration, or none yet, to the process's exit status.

use std::io;
use std::time::Instant;

use serde_json::Value;

use crate::api::{Api, ApiError, Listen};
use crate::config::{ConfigError, OutputFile, VmConfig};
use crate::devices::terminal;
use crate::ending::Ending;
use crate::events::{Events, Monitor};
use crate::keeper;
use crate::probe::{self, ProbeError};
use crate::sandbox::{self, Entered, Jail, JailError, Kind, Seccomp};
use crate::stdio;
use crate::vmm::{self, Origin, Over, Restart, Restore, TimelineError, Vmm, VmmError, Zero};

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
            Self::Vmm(error) => error.is_usage(),
            _ => false,
        }
    }
}

/// The VM that is to run first.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
pub enum First {
    /// One that starts.
    Boot(VmConfig),
    /// One that goes on from a snapshot; if its guest has reset since, it starts.
    Restore(Restore),
}

impl First {
    /// Refuses it if one of its files, as far as they can be told by now, is `output`, which is flatboot's own and about to be emptied.
    pub fn leaves_alone(&self, output: &OutputFile) -> Result<(), ConfigError> {
        match self {
            Self::Boot(vm) => vm.leaves_alone(output),
            Self::Restore(restore) => vmm::leaves_alone(restore, output),
        }
    }

    /// Whether it is to start again when its guest resets; one that is restored, if that has been said again.
    #[must_use]
    pub fn restarts(&self) -> bool {
        match self {
            Self::Boot(vm) => vm.restart_on_reset(),
            Self::Restore(restore) => restore.sections.get("restart_on_reset") == Some(&Value::Bool(true)),
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

/// What has come of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Whether it is to be started again.
    pub again: bool,
}

/// Runs the VM to its end, or serves until there is nothing more to serve: then there may be no outcome. Threads are in a jail by
/// `seccomp`. `zero` is when this process began to execute.
pub fn run(vm: Option<First>, outside: Outside, seccomp: Seccomp, zero: Instant) -> Result<Option<Outcome>, RunError> {
    // The first of all: what is to come reads files that others have made.
    sandbox::harden()?;
    let jail = Jail::new(seccomp, terminal::restore)?;
    let mut entering = Vec::new();
    let (events, monitor) = watched(outside.events, &jail, zero, &mut entering)?;
    events.vmm("starting");
    let result = with_events(vm, outside.api, (&events, jail, entering), zero);
    events.vmm("shutdown");
    drop(events);
    if let Some(monitor) = monitor {
        monitor.finish();
    }
    result
}

/// Who writes events, `entering` its jail.
fn watched(
    file: Option<std::fs::File>,
    jail: &Jail,
    zero: Instant,
    entering: &mut Vec<Entered>,
) -> Result<(Events, Option<Monitor>), RunError> {
    let Some(file) = file else { return Ok((Events::default(), None)) };
    let (begin, inside) = jail.gate(Kind::Events);
    let (events, monitor) = Events::to(file, zero, begin).map_err(RunError::Events)?;
    entering.push(inside);
    Ok((events, Some(monitor)))
}

fn with_events(
    vm: Option<First>,
    listen: Option<Listen>,
    (events, jail, mut entering): (&Events, Jail, Vec<Entered>),
    zero: Instant,
) -> Result<Option<Outcome>, RunError> {
    // What serves others cannot make place for another process.
    let restart = if listen.is_some() { Restart::Here } else { Restart::Outside };
    let mut vmm = Vmm::new(restart, events.clone(), jail.clone());
    let api = listen.map(|listen| serve(&mut vmm, listen, &jail, vm.is_some(), &mut entering)).transpose()?;
    // Before there is a guest. Together, since each takes its time.
    entering.into_iter().try_for_each(Entered::wait)?;
    let again = restart == Restart::Outside && keeper::has_restarted();
    let result = own(vmm, vm, Origin { zero: Some(Zero::Exec(zero)), again });
    drop(api);
    terminal::restore();
    let Some(over) = result? else { return Ok(None) };
    let Over { ending, aftermath, again, kvm } = over;
    stdio::tell(&format!("flatboot: {ending}"));
    aftermath.report()?;
    if matches!(ending, Ending::Kvm { .. }) {
        // Whether it was the host's fault.
        probe::try_guest(Some(kvm))?;
    }
    Ok(Some(Outcome { ending, again }))
}

/// Takes requests for `vmm`, which `starts` a VM next, or waits for one; the threads for that are `entering` their jails. From here on the calling thread is in a jail as wide as the start of VMs needs, and what it starts in
/// none that is wider.
fn serve(
    vmm: &mut Vmm,
    listen: Listen,
    jail: &Jail,
    starts: bool,
    entering: &mut Vec<Entered>,
) -> Result<Api, RunError> {
    // Whenever a signal comes, the socket has to go. While it is made, a signal waits: for it, or for the owner.
    let leave = vmm.leave();
    let mut making = leave.making();
    let (begin, inside) = jail.gate(Kind::ServerSignals);
    vmm.listen(starts, begin).map_err(RunError::Signals)?;
    entering.push(inside);
    let (begin, inside) = jail.gate(Kind::Api);
    let api = Api::start(listen, vmm.caller(), begin)?;
    entering.push(inside);
    making.server = Some(Box::new(api.remover()));
    drop(making);
    jail.enter(Kind::Owner)?;
    Ok(api)
}

/// Starts `vm`, if there is one already, and stays until there is nothing more to do.
fn own(mut vmm: Vmm, vm: Option<First>, origin: Origin) -> Result<Option<Over>, VmmError> {
    match vm {
        None => {}
        Some(First::Restore(restore)) if !origin.again => vmm.restore(restore, origin.zero)?,
        Some(First::Restore(restore)) => {
            let (vm, wanted) = vmm::configuration(restore)?;
            boot(&mut vmm, vm, wanted, origin)?;
        }
        Some(First::Boot(vm)) => boot(&mut vmm, vm, None, origin)?,
    }
    vmm.serve_it_alone();
    vmm.serve()
}

fn boot(vmm: &mut Vmm, vm: VmConfig, wanted: Option<u64>, origin: Origin) -> Result<(), VmmError> {
    let again = origin.again && vm.restart_on_reset();
    vmm.create(vm)?;
    vmm.want(wanted);
    vmm.boot(Origin { again, ..origin })
}
