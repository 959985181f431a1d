// SPDX-License-Identifier: Apache-2.0
//! What the owner of a VM does when it is asked from outside.

use super::call::{Answer, Call, Info, InfoState, Resize};
use super::error::VmmError;
use super::lifecycle::{NotNow, State, Step};
use super::live::{Live, Origin, Zero};
use super::{Kept, Stage, Vmm};
use crate::config::{AddError, FieldError, VmConfig};
use crate::field::Field;

const DESIRED_BALLOON: Field = Field::section("desired_balloon");

impl Vmm {
    /// Does what it is asked. To quit and to save are not among it.
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
            Call::Resize(sizes) => self.resize(sizes)?,
            Call::ResizeDisk { id, size } => self.running()?.resize_disk(&id, size)?,
            Call::RemoveDevice(id) => self.remove_device(id)?,
            Call::Restore(restore) => self.restore(*restore, None)?,
            // Answered when it is over, and not here.
            Call::Snapshot(_) | Call::Quit => {}
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
            memory_actual_size = memory_actual_size.saturating_sub(live.given_up());
            live.pty().into_iter().for_each(|path| config.locate_console(path));
        }
        Ok(Answer::Info(Box::new(Info { config, state, memory_actual_size })))
    }

    fn pause(&mut self) -> Result<(), VmmError> {
        self.running()?.state().after(Step::Pause)?;
        self.events.vm("pausing");
        self.running()?.pause()?;
        self.events.vm("paused");
        Ok(())
    }

    pub(super) fn resume(&mut self) -> Result<(), VmmError> {
        self.running()?.state().after(Step::Resume)?;
        self.events.vm("resuming");
        self.running()?.resume()?;
        self.events.vm("resumed");
        Ok(())
    }

    /// What could not start again goes on running, as far as that is known before.
    fn reboot(&mut self) -> Result<(), VmmError> {
        self.running()?;
        if let Some(Kept { config, stage: Stage::Live(live) }) = &self.vm {
            live.check_again(config)?;
        }
        self.events.vm("rebooting");
        self.end("it is rebooted");
        self.boot_again()
    }

    /// One that is not there is as good as deleted.
    fn delete(&mut self) {
        self.end("it is deleted");
        if self.vm.take().is_some() {
            self.events.vm("deleted");
        }
    }

    /// The size of the balloon is what can change; a VM that does not run begins with it.
    fn resize(&mut self, sizes: Resize) -> Result<(), VmmError> {
        let kept = self.vm.as_mut().ok_or(VmmError::NotCreated)?;
        let (cpus, memory) = (kept.config.cpus(), kept.config.memory_size());
        let fixed =
            [("desired_vcpus", sizes.desired_vcpus.map(u64::from), cpus), ("desired_ram", sizes.desired_ram, memory)];
        for (field, desired, is) in fixed {
            if let Some(desired) = desired.filter(|desired| *desired != is) {
                return Err(VmmError::Refused(format!("{field}={desired}: cannot change: must be absent, or {is}")));
            }
        }
        if let Some(bytes) = sizes.desired_balloon {
            let wrong = |error: FieldError| VmmError::Refused(error.to_string());
            kept.config.resize_balloon(bytes, DESIRED_BALLOON).map_err(wrong)?;
            if let Stage::Live(live) = &kept.stage {
                live.ask_for(bytes);
            }
        }
        Ok(())
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
    fn state(&self) -> State {
        match self {
            Self::Created => State::Created,
            Self::Live(live) => live.state(),
            Self::Over => State::Ended,
        }
    }
}
