// SPDX-License-Identifier: Apache-2.0
//! A VM whose vCPUs run, or rest.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvm_ioctls::Kvm;
use vmm_sys_util::eventfd::EventFd;

use super::aftermath::Aftermath;
use super::error::{StartError, VmmError};
use super::lifecycle::{NotNow, State, Step};
use crate::boot::{self, BootError, Booted, Console, Control};
use crate::config::{Config, SerialConfig, VmConfig};
use crate::devices::virtio::Running;
use crate::ender::Ender;
use crate::ending::Ending;
use crate::listener::Bound;
use crate::memory::guest::page_faults;
use crate::observe::counters::{Counters, Snapshot};
use crate::sandbox::{Jail, JailError};
use crate::timeline::Timeline;
use crate::vcpu::Threads;

/// How long vCPUs and devices may take to rest. A disk may take longer; then there is no pause.
const REST: Duration = Duration::from_secs(5);
/// How long vCPUs may take to end. Nothing depends on that they have.
const FINISH: Duration = Duration::from_millis(500);
/// How often a guest is asked to power off.
const PRESS_AGAIN: Duration = Duration::from_secs(5);

/// Where a VM comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    /// When what started it began, if that was the process itself.
    pub zero: Option<Instant>,
    /// Whether it was there before and has been reset: what it said then is kept.
    pub again: bool,
}

/// A VM whose vCPUs run, or rest.
#[derive(Debug)]
pub(super) struct Live {
    state: State,
    ender: Ender,
    vcpus: Threads,
    workers: Vec<Running>,
    /// What they are called, in the order of their slots.
    disks: Vec<String>,
    power_button: EventFd,
    counters: Arc<Counters>,
    kvm: Kvm,
    console: Option<Console>,
    /// Of its vsock device.
    socket: Option<Bound>,
    shutdown_timeout: Duration,
    /// When it was asked to power off.
    asked: Option<Instant>,
    /// How long after that the power button is pressed again.
    again: Duration,
    since: Instant,
    aftermath: Aftermath,
}

impl Live {
    /// Starts it. Its threads enter `jail`; so does the calling one with `once`, as it starts no other VM. `ready` is called when
    /// nothing takes long any more and no vCPU runs yet.
    pub(super) fn start(
        vm: VmConfig,
        origin: Origin,
        ender: Ender,
        (jail, once): (Jail, bool),
        ready: impl FnOnce(&Control) -> io::Result<()>,
    ) -> Result<Self, StartError> {
        let timeline = Arc::new(origin.zero.map_or_else(Timeline::from_now, Timeline::new));
        let mut config = Config::try_from(vm)?;
        timeline.phase("configuration valid");
        let control = Control::new(ender.clone(), walled(jail, &config, once).map_err(BootError::Jail)?, once);
        let aftermath = Aftermath::of(&mut config, Arc::clone(&timeline));
        if origin.again
            && let SerialConfig::File(output) = &mut config.machine.serial
        {
            // What the guest said before it reset is there.
            output.append();
        }
        let shutdown_timeout = config.machine.shutdown_timeout;
        let prepared = boot::prepare(config, &timeline, &control)?;
        ready(&control).map_err(BootError::Signals)?;
        let Booted { vcpus, workers, disks, power_button, counters, kvm, console, socket } =
            prepared.start(&control)?;
        Ok(Self {
            state: State::Running,
            ender,
            vcpus,
            workers,
            disks,
            power_button,
            counters,
            kvm,
            console,
            socket,
            shutdown_timeout,
            asked: None,
            again: PRESS_AGAIN,
            since: Instant::now(),
            aftermath,
        })
    }

    /// Where it is in its life.
    pub(super) const fn state(&self) -> State {
        self.state
    }

    /// How long it has run.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// vCPUs first: then nobody gives devices more to do.
    pub(super) fn pause(&mut self) -> Result<(), VmmError> {
        let paused = self.state.after(Step::Pause)?;
        self.vcpus.pause(REST)?;
        self.workers.iter().for_each(Running::ask_to_pause);
        if let Err(error) = self.workers.iter().try_for_each(|worker| worker.await_pause(REST)) {
            self.go_on();
            return Err(error.into());
        }
        self.state = paused;
        Ok(())
    }

    pub(super) fn resume(&mut self) -> Result<(), VmmError> {
        self.state = self.state.after(Step::Resume)?;
        self.go_on();
        Ok(())
    }

    /// Devices first: they must be there for what vCPUs ask.
    fn go_on(&self) {
        self.workers.iter().for_each(Running::resume);
        self.vcpus.resume();
    }

    /// Has disk `id` have `size` bytes. The guest is told, so it must run.
    pub(super) fn resize_disk(&self, id: &str, size: u64) -> Result<(), VmmError> {
        if self.state != State::Running {
            return Err(NotNow { state: self.state, must: "running" }.into());
        }
        let slot = self.disks.iter().position(|disk| disk == id);
        let name = slot.map(|slot| format!("virtio{slot}"));
        let worker = name.and_then(|name| self.workers.iter().find(|worker| worker.is(&name)));
        let worker = worker.ok_or_else(|| VmmError::NoDisk(id.to_owned()))?;
        Ok(worker.resize(size, REST)?)
    }

    /// Asks the guest to power off.
    pub(super) fn press_power_button(&self) -> Result<(), VmmError> {
        self.power_button.write(1).map_err(VmmError::PowerButton)
    }

    /// The same, and ends it when it has not in time.
    pub(super) fn power_off(&mut self) {
        if self.press_power_button().is_err() {
            return self.stop("a signal came and the power button does not work".to_owned());
        }
        tracing::info!("asked the guest to power off");
        self.asked = Some(Instant::now());
        self.again = PRESS_AGAIN;
    }

    /// When something is to be done although nobody says anything, once the guest has been asked to power off.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.asked?.checked_add(self.again.min(self.shutdown_timeout))
    }

    /// Does what is to be done then: asks again, since a guest that is still starting has not heard; or says how the VM ends.
    pub(super) fn late(&mut self) -> Option<Ending> {
        if self.asked.is_some_and(|asked| asked.elapsed() < self.shutdown_timeout) {
            self.again += PRESS_AGAIN;
            return self.press_power_button().err().map(|error| Ending::Internal { what: error.to_string() });
        }
        let why = format!("it did not power off within {} s", self.shutdown_timeout.as_secs());
        Some(Ending::Stopped { why })
    }

    /// Ends it, for a reason from outside.
    pub(super) fn stop(&self, why: String) {
        self.ender.end(Ending::Stopped { why });
    }

    /// What its vCPUs and devices have done.
    pub(super) fn counters(&self) -> Snapshot {
        self.counters.snapshot(page_faults())
    }

    /// Ends it. No vCPU runs when this returns, unless one waits for whoever reads its output.
    pub(super) fn finish(self) -> (Aftermath, Kvm) {
        let Self { vcpus, workers, console, socket, aftermath, kvm, .. } = self;
        vcpus.finish(FINISH);
        workers.iter().for_each(Running::ask_to_finish);
        drop((workers, console, socket));
        (aftermath, kvm)
    }
}

/// The jail with what `config` wants it to have. With Landlock, no thread of the VM opens a file; and if this thread starts no other
/// VM (`once`), no file that an option names can be opened from here on.
fn walled(jail: Jail, config: &Config, once: bool) -> Result<Jail, JailError> {
    match (config.landlock, once) {
        (false, _) => return Ok(jail),
        (true, false) => return jail.without_files(),
        (true, true) => {}
    }
    let serial = match &config.machine.serial {
        SerialConfig::File(output) => Some(output),
        SerialConfig::Tty | SerialConfig::Null | SerialConfig::Off => None,
    };
    let outputs = serial.into_iter().chain(&config.timeline).map(|output| output.path().to_owned());
    let socket = config.machine.vsock.iter().map(|vsock| vsock.path.clone());
    let paths: Vec<PathBuf> = outputs.chain(socket).collect();
    jail.without_files_from_here(&paths)
}
