// SPDX-License-Identifier: Apache-2.0
//! A VM whose vCPUs run, or rest.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvm_ioctls::Kvm;

use super::aftermath::Aftermath;
use super::error::{SaveError, StartError, VmmError};
use super::lifecycle::{NotNow, State, Step};
use crate::boot::{self, BootError, Context, RunningVm};
use crate::config::{Config, ConsoleConfig, VmConfig};
use crate::devices::held::{Asked, Progress, Report};
use crate::devices::running::Left;
use crate::devices::virtio::BalloonControl;
use crate::devices::virtio::block::Written;
use crate::ender::Ender;
use crate::ending::Ending;
use crate::leave::Leave;
use crate::memory::GuestMemory;
use crate::memory::guest::page_faults;
use crate::observe::counters::Snapshot;
use crate::sandbox::{Jail, JailError};
use crate::state::{DeviceStates, MachineState};
use crate::timeline::Timeline;
use crate::{vcpu, vm};

/// How long vCPUs and devices may take to rest. A disk may take longer; then there is no pause.
const REST: Duration = Duration::from_secs(5);
/// How long vCPUs may take to end. Nothing depends on that they have.
const FINISH: Duration = Duration::from_millis(500);
/// How long a guest whose kernel panics may go on to say why, unless it says that it has.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often a guest is asked to power off.
const PRESS_AGAIN: Duration = Duration::from_secs(5);

/// Where a VM comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin {
    /// When it began that it starts; now, if nobody knows better.
    pub zero: Option<Zero>,
    /// Whether it was there before and has been reset: what it said then is kept.
    pub again: bool,
}

/// When the start of a VM began.
#[derive(Debug, Clone, Copy)]
pub enum Zero {
    /// With the process itself.
    Exec(Instant),
    /// When somebody asked for it.
    Asked(Instant),
}

/// A VM whose vCPUs run, or rest.
#[derive(Debug)]
pub(super) struct Live {
    state: State,
    ender: Ender,
    vm: RunningVm,
    shutdown_timeout: Duration,
    /// When it was asked to power off.
    asked: Option<Instant>,
    /// How long after that the power button is pressed again.
    again: Duration,
    /// When its kernel said that it panics.
    panicked: Option<Instant>,
    since: Instant,
    aftermath: Aftermath,
}

/// What a VM is started with.
pub(super) struct Start<'a> {
    pub(super) config: VmConfig,
    pub(super) origin: Origin,
    /// What it goes on from, if it does.
    pub(super) saved: Option<boot::Origin>,
    pub(super) ender: Ender,
    /// Who is told what becomes of requests for memory.
    pub(super) memory: Box<dyn Fn(Report) + Send>,
    /// Knows what must not be left behind until it is there.
    pub(super) leave: &'a Leave,
    /// What its threads enter,
    pub(super) jail: Jail,
    /// and the calling one, as it starts no other VM.
    pub(super) once: bool,
}

impl Live {
    /// Starts it, or has it rest where it was saved. `ready` is called when nothing takes long any more and no vCPU runs yet.
    pub(super) fn start(start: Start<'_>, ready: impl FnOnce(&Context) -> io::Result<()>) -> Result<Self, StartError> {
        let Start { config: vm, origin, saved, ender, memory, leave, jail, once } = start;
        let timeline = Arc::new(match origin.zero {
            Some(Zero::Exec(zero)) => Timeline::new(zero),
            Some(Zero::Asked(zero)) => Timeline::asked(zero),
            None => Timeline::asked(Instant::now()),
        });
        let mut config = if saved.is_some() { Config::open_saved(vm, leave)? } else { Config::open(vm, leave)? };
        timeline.phase("configuration valid");
        let jail = walled(jail, &config, once).map_err(BootError::Jail)?;
        let aftermath = Aftermath::of(&mut config, Arc::clone(&timeline));
        if origin.again {
            config.machine.append();
        }
        let shutdown_timeout = config.machine.shutdown_timeout;
        let context = Context::new(ender.clone(), jail, once, timeline);
        let (state, vm) = match saved {
            Some(saved) => (State::Paused, boot::restore(config, saved, &context, ready)?),
            None => (State::Running, boot::boot(config, &context, ready)?),
        };
        if let Some(held) = &vm.devices.held {
            held.tell(memory);
        }
        Ok(Self {
            state,
            ender,
            vm,
            shutdown_timeout,
            asked: None,
            again: PRESS_AGAIN,
            panicked: None,
            since: Instant::now(),
            aftermath,
        })
    }

    /// What it is, while it rests: what KVM has, and what its devices keep.
    pub(super) fn save(&self) -> Result<(MachineState, DeviceStates), SaveError> {
        let shared = &self.vm.shared;
        let msrs = self.vm.kvm.get_msr_index_list().map_err(vm::ioctl("KVM_GET_MSR_INDEX_LIST"))?;
        let vcpus = self.vm.vcpus.save(&msrs.as_slice().into())?;
        let machine = shared.vm.save(vcpus)?;
        Ok((machine, DeviceStates { ports: shared.ports.save()?, mmio: shared.mmio.save()? }))
    }

    /// Its memory.
    pub(super) fn memory(&self) -> &GuestMemory {
        &self.vm.shared.memory
    }

    /// The files of the disks that its guest may write to, by their paths.
    pub(super) fn written(&self) -> Arc<[Written]> {
        Arc::clone(&self.vm.devices.written)
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
        let deadline = Instant::now() + REST;
        self.vm.vcpus.pause(REST)?;
        if let Err(error) = self.vm.devices.workers.pause(deadline, REST) {
            self.go_on();
            return Err(error.into());
        }
        self.vm.devices.terminal.iter().for_each(|terminal| terminal.rest(true));
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
        self.vm.devices.workers.resume();
        self.vm.devices.terminal.iter().for_each(|terminal| terminal.rest(false));
        self.vm.vcpus.resume();
    }

    /// Has disk `id` have `size` bytes. The guest is told, so it must run.
    pub(super) fn resize_disk(&self, id: &str, size: u64) -> Result<(), VmmError> {
        if self.state != State::Running {
            return Err(NotNow { state: self.state, must: "running" }.into());
        }
        let disk = self.vm.devices.disks.iter().find(|(name, _)| name == id);
        let (_, disk) = disk.ok_or_else(|| VmmError::NoDisk(id.to_owned()))?;
        Ok(disk.resize(size, REST)?)
    }

    /// Asks the guest to power off.
    pub(super) fn press_power_button(&self) -> Result<(), VmmError> {
        self.vm.devices.power_button.write(1).map_err(VmmError::PowerButton)
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

    /// If it was asked to power off, its time for that begins now.
    pub(super) fn is_asked_from_now_on(&mut self) {
        self.asked = self.asked.map(|_| Instant::now());
        self.again = PRESS_AGAIN;
    }

    /// How it ends, as it says that it ends so. One whose kernel panics for the first time has a moment yet, and ends by nothing else then.
    pub(super) fn ends(&mut self, ending: Ending) -> Option<Ending> {
        if self.panicked.is_some() {
            return Some(Ending::Panic);
        }
        if ending != Ending::Panic {
            return Some(ending);
        }
        self.panicked = Some(Instant::now());
        None
    }

    /// When something is to be done although nobody says anything, once the guest has panicked or been asked to power off.
    pub(super) fn alarm(&self) -> Option<Instant> {
        match self.panicked {
            Some(panicked) => Some(panicked + LAST_WORDS),
            None => self.asked?.checked_add(self.again.min(self.shutdown_timeout)),
        }
    }

    /// Does what is to be done then: asks again, since a guest that is still starting has not heard; or says how the VM ends.
    pub(super) fn late(&mut self) -> Option<Ending> {
        if self.panicked.is_some() {
            return Some(Ending::Panic);
        }
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

    /// The pseudo terminal at its console.
    pub(super) fn pty(&self) -> Option<&Path> {
        self.vm.devices.pty.as_deref()
    }

    /// Bytes that the guest has given up because it was asked to.
    pub(super) fn given_up(&self) -> u64 {
        self.vm.devices.balloon.as_ref().map_or(0, BalloonControl::actual)
    }

    /// Asks the guest to give up `bytes`.
    pub(super) fn ask_for(&self, bytes: u64) {
        self.vm.devices.balloon.iter().for_each(|balloon| balloon.ask(bytes));
    }

    /// How far the guest is with its held memory, if it has any.
    pub(super) fn memory_progress(&self) -> Option<Progress> {
        self.vm.devices.held.as_ref().map(|held| held.progress())
    }

    /// Asks the guest to own `bytes` of that.
    pub(super) fn ask_for_memory(&self, bytes: u64) -> Asked {
        self.vm.devices.held.as_ref().map_or(Asked::Done, |held| held.ask(bytes))
    }

    /// The same behind what it had begun when it was saved.
    pub(super) fn ask_for_memory_next(&self, bytes: u64) {
        self.vm.devices.held.iter().for_each(|held| held.ask_next(bytes));
    }

    /// What its vCPUs and devices have done.
    pub(super) fn counters(&self) -> Snapshot {
        self.vm.counters.snapshot(page_faults())
    }

    /// Whether a VM could be started from `config`, from which this one was: what can be known without what this one has.
    pub(super) fn check_again(&self, config: &VmConfig) -> Result<(), StartError> {
        let (payload, cpus, memory) = config.look_again()?;
        let width = vm::address_width(&self.vm.kvm).map_err(BootError::Vm)?;
        Ok(boot::check(&payload, cpus, &memory, width)?)
    }

    /// Ends it. No vCPU runs when this returns, unless the host holds one up; and no device works but those that are left behind.
    pub(super) fn finish(self) -> (Aftermath, Kvm, (vcpu::Left, Left)) {
        let Self { vm: RunningVm { vcpus, devices, kvm, .. }, aftermath, .. } = self;
        let vcpus = vcpus.finish(FINISH);
        (aftermath, kvm, (vcpus, devices.workers.finish()))
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
    let outputs = config.machine.outputs().chain(&config.timeline).map(|output| output.path().to_owned());
    let vsock = config.machine.vsock.iter().map(|vsock| vsock.path.clone());
    let console = config.machine.console.iter().filter_map(|console| match console {
        ConsoleConfig::Socket(_, _, path) => Some(path.clone()),
        ConsoleConfig::Tty | ConsoleConfig::File(_) | ConsoleConfig::Pty(_) => None,
    });
    let paths: Vec<PathBuf> = outputs.chain(vsock).chain(console).collect();
    jail.without_files_from_here(&paths)
}
