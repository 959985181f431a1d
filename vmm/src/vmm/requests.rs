// SPDX-License-Identifier: Apache-2.0
//! What the owner of a VM does when it is asked from outside.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::call::{Answer, Call, Info, InfoState};
use super::error::VmmError;
use super::lifecycle::{NotNow, State, Step};
use super::live::{Live, Origin, Zero};
use super::{Kept, Stage, Vmm};
use crate::chain::chain;
use crate::config::{AddError, VmConfig};

impl Vmm {
    /// Does what it is asked. To quit, to save and to be of another size are not among it.
    pub(super) fn answer(&mut self, call: Call) -> Result<Answer, VmmError> {
        if self.writing.is_some() && !matches!(call, Call::Info | Call::Counters) {
            return Err(VmmError::Writing);
        }
        match call {
            Call::Info => return self.info(),
            Call::Counters => return Ok(Answer::Counters(self.running()?.counters())),
            Call::Create(config) => self.create(*config)?,
            Call::Boot(asked) => self.boot(Origin { zero: Some(Zero::Asked(asked)), again: false })?,
            Call::Pause => self.pause()?,
            Call::Resume => self.resume()?,
            Call::PowerButton => self.running()?.press_power_button()?,
            Call::Reboot => self.reboot()?,
            Call::Shutdown => {
                self.running()?;
                self.end("it was shut down");
            }
            Call::Delete => self.delete(),
            Call::AddDisk(disk) => self.at_rest()?.add_disk(disk).map_err(|error| not_added(&error))?,
            Call::AddNet(net) => self.at_rest()?.add_net(net).map_err(|error| not_added(&error))?,
            Call::AddVsock(vsock) => self.at_rest()?.add_vsock(vsock).map_err(|error| not_added(&error))?,
            Call::ResizeDisk { id, size } => self.running()?.resize_disk(&id, size)?,
            Call::RemoveDevice(id) => self.remove_device(id)?,
            Call::Restore(restore) => self.restore(*restore, None)?,
            // Answered when it is over, and not here.
            Call::Resize(_) | Call::Snapshot(_) | Call::Quit => {}
        }
        Ok(Answer::Done)
    }

    /// The VM, which must run or rest.
    fn running(&mut self) -> Result<&mut Live, VmmError> {
        match &mut self.vm {
            None => Err(VmmError::NotCreated),
            Some(Kept { stage: Stage::Live(live), .. }) => Ok(live),
            Some(kept) => Err(NotNow { state: kept.stage.state(), must: "running or paused" }.into()),
        }
    }

    /// The configuration of the VM, which must not run.
    fn at_rest(&mut self) -> Result<&mut VmConfig, VmmError> {
        let kept = self.vm.as_mut().ok_or(VmmError::NotCreated)?;
        match kept.stage {
            Stage::Live(_) => Err(NotNow { state: kept.stage.state(), must: "created or shut down" }.into()),
            Stage::Created | Stage::Over => Ok(&mut kept.config),
        }
    }

    fn info(&self) -> Result<Answer, VmmError> {
        let kept = self.vm.as_ref().ok_or(VmmError::NotCreated)?;
        let state = match kept.stage.state() {
            State::Created => InfoState::Created,
            State::Running => InfoState::Running,
            State::Paused => InfoState::Paused,
            State::Ended => InfoState::Shutdown,
        };
        let mut config = kept.config.clone();
        let mut memory_actual_size = config.memory_size();
        if let Stage::Live(live) = &kept.stage {
            memory_actual_size += live.memory_progress().map_or(0, |progress| progress.owned);
            memory_actual_size = memory_actual_size.saturating_sub(live.given_up());
            live.pty().into_iter().for_each(|path| config.locate_console(path));
        }
        Ok(Answer::Info(Box::new(Info { config, state, memory_actual_size })))
    }

    fn pause(&mut self) -> Result<(), VmmError> {
        self.running()?.state().after(Step::Pause)?;
        self.events.vm("pausing");
        let paused = self.running()?.pause();
        paused.inspect_err(|error| self.events.failed("pause-failed", &chain(error)))?;
        self.events.vm("paused");
        Ok(())
    }

    pub(super) fn resume(&mut self) -> Result<(), VmmError> {
        self.running()?.state().after(Step::Resume)?;
        self.events.vm("resuming");
        self.running()?.resume()?;
        // A guest that rests can do nothing for it: the time that it has begins anew.
        self.resizing.iter_mut().for_each(|resizing| resizing.since = Instant::now());
        self.events.vm("resumed");
        Ok(())
    }

    /// What could not start again goes on running, as far as that is known before.
    fn reboot(&mut self) -> Result<(), VmmError> {
        self.running()?;
        if let Some(Kept { config, stage: Stage::Live(live), .. }) = &self.vm {
            // The disk that has its files may hang. As at a start, a signal then ends the process: the VM is to go anyway.
            self.starting.store(true, Ordering::Release);
            let checked = live.check_again(config);
            self.starting.store(false, Ordering::Release);
            checked?;
        }
        self.events.vm("rebooting");
        self.end("it is rebooted");
        self.want_anew();
        self.boot_again()
    }

    /// One that is not there is as good as deleted.
    fn delete(&mut self) {
        self.end("it is deleted");
        if self.vm.take().is_some() {
            self.events.vm("deleted");
        }
    }

    fn remove_device(&mut self, id: String) -> Result<(), VmmError> {
        if self.at_rest()?.remove_device(&id) { Ok(()) } else { Err(VmmError::NoDevice(id)) }
    }
}

fn not_added(error: &AddError) -> VmmError {
    match error {
        AddError::Taken(_) | AddError::Second => VmmError::Taken(error.to_string()),
        AddError::TooMany { .. } => VmmError::Refused(error.to_string()),
    }
}

impl Stage {
    pub(super) fn state(&self) -> State {
        match self {
            Self::Created => State::Created,
            Self::Live(live) => live.state(),
            Self::Over => State::Ended,
        }
    }
}
