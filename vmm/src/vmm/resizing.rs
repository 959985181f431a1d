// SPDX-License-Identifier: Apache-2.0
//! How a VM's memory becomes more or less while it runs: the guest is asked, and whoever wants it waits for what it says, not the
//! owner.

use std::time::{Duration, Instant};

use flatboot_handoff::SECTION_SIZE;

use super::awaited::Awaited;
use super::call::{Answer, Resize};
use super::error::{MemoryError, VmmError};
use super::handle::Reply;
use super::lifecycle::{NotNow, State};
use super::live::Live;
use super::{Kept, Stage, Vmm};
use crate::chain::chain;
use crate::config::{FieldError, VmConfig};
use crate::devices::held::{Asked, Ended, Report};
use crate::field::Field;

const DESIRED_BALLOON: Field = Field::section("desired_balloon");

/// How long a guest may do nothing for its request.
const ANSWER: Duration = Duration::from_secs(60);
/// How long it may take until its driver is there.
const DRIVER: Duration = Duration::from_secs(10);

impl Vmm {
    /// Has the VM be of another size; `reply` is told when it is.
    pub(super) fn resize(&mut self, sizes: Resize, reply: Reply) {
        match self.begin_to_resize(sizes) {
            Ok(None) => reply.send(Ok(Answer::Done)),
            Ok(Some(wanted)) => {
                self.events.vm("resizing");
                self.resizing = Some(Awaited { wanted, since: Instant::now(), reply });
            }
            Err(error) => reply.send(Err(error)),
        }
    }

    /// Checks all of it, then asks for all of it. What the guest has to answer for: bytes of held memory.
    fn begin_to_resize(&mut self, sizes: Resize) -> Result<Option<u64>, VmmError> {
        if self.writing.is_some() {
            return Err(VmmError::Writing);
        }
        let under_way = self.resizing.as_ref().map(|resizing| resizing.wanted);
        let Kept { config, stage, wanted: first, .. } = self.vm.as_mut().ok_or(VmmError::NotCreated)?;
        let size = config.memory_size();
        if let Some(desired) = sizes.desired_vcpus.map(u64::from).filter(|desired| *desired != config.cpus()) {
            return Err(fixed("desired_vcpus", desired, config.cpus()));
        }
        let wanted = sizes.desired_ram.map(|desired| held(config, desired)).transpose()?;
        let mut resized = config.clone();
        if let Some(bytes) = sizes.desired_balloon {
            let wrong = |error: FieldError| VmmError::Refused(error.to_string());
            resized.resize_balloon(bytes, DESIRED_BALLOON).map_err(wrong)?;
        }
        let waits = match (wanted, &*stage) {
            (None, _) => None,
            // One that does not run has what it will start with, whatever it was to have then.
            (Some(0), Stage::Created | Stage::Over) => {
                *first = None;
                None
            }
            (Some(wanted), Stage::Live(live)) => {
                if let Some(other) = under_way {
                    return Err(MemoryError::Busy { desired: size + other }.into());
                }
                ask(live, size, wanted)?
            }
            (Some(_), stage) => return Err(NotNow { state: stage.state(), must: "running" }.into()),
        };
        *config = resized;
        if let (Some(bytes), Stage::Live(live)) = (sizes.desired_balloon, &*stage) {
            live.ask_for(bytes);
        }
        Ok(waits)
    }

    /// Asks a guest that starts, or has been restored and rests, to own what it is to own from the beginning. Nobody waits for it: it
    /// goes on with that, or with what it had begun when it was saved, and then with that.
    pub(super) fn ask_from_the_beginning(&self) {
        if let Some(Kept { wanted: Some(wanted), stage: Stage::Live(live), .. }) = &self.vm {
            live.ask_for_memory_next(*wanted);
        }
    }

    /// The VM that has been created is to have a size that its configuration cannot say.
    pub fn want(&mut self, wanted: Option<u64>) {
        self.vm.iter_mut().for_each(|kept| kept.wanted = wanted);
    }

    /// What the memory device says has become of a request, whoever has asked for it.
    pub(super) fn resized(&mut self, report: Report) {
        let size = self.vm.as_ref().map_or(0, |kept| kept.config.memory_size());
        let (wanted, result) = match report {
            Report::Ended(Ended { wanted, owned }) => {
                let refused = MemoryError::Refused { desired: size + wanted, is: size + owned };
                (wanted, if owned == wanted { Ok(Answer::Done) } else { Err(VmmError::from(refused)) })
            }
            Report::Host { wanted, source } => {
                (wanted, Err(MemoryError::Host { desired: size + wanted, source }.into()))
            }
        };
        match &result {
            Ok(_) => self.events.resized(size + wanted),
            Err(error) => self.events.failed("resize-failed", &chain(error)),
        }
        match self.resizing.take_if(|resizing| resizing.wanted == wanted) {
            Some(resizing) => resizing.reply.send(result),
            None => {
                if let Err(error) = result {
                    tracing::warn!("{}", chain(&error));
                }
            }
        }
    }

    /// The VM is over, or another one.
    pub(super) fn give_up_resizing(&mut self) {
        if let Some(resizing) = self.resizing.take() {
            self.not_resized(resizing.reply, MemoryError::Over);
        }
    }

    /// Until when whoever waits does so.
    pub(super) fn resize_deadline(&mut self) -> Option<Instant> {
        let since = self.resizing.as_ref()?.since;
        let live = self.live()?;
        // One that rests can do nothing for it.
        if live.state() == State::Paused {
            return None;
        }
        let progress = live.memory_progress()?;
        if progress.driver { since.max(progress.since).checked_add(ANSWER) } else { since.checked_add(DRIVER) }
    }

    /// Nobody waits any longer, if it is time: the guest may do it all the same.
    pub(super) fn resize_is_late(&mut self) {
        let is_late = self.resize_deadline().is_some_and(|deadline| deadline <= Instant::now());
        let progress = self.live().and_then(|live| live.memory_progress());
        let size = self.vm.as_ref().map_or(0, |kept| kept.config.memory_size());
        let (Some(progress), Some(resizing)) = (progress, self.resizing.take_if(|_| is_late)) else { return };
        let (desired, is) = (size + resizing.wanted, size + progress.owned);
        let error = if progress.driver {
            MemoryError::Late { desired, is, seconds: ANSWER.as_secs() }
        } else {
            MemoryError::NoDriver { desired, is, seconds: DRIVER.as_secs() }
        };
        self.not_resized(resizing.reply, error);
    }

    fn not_resized(&self, reply: Reply, error: MemoryError) {
        let error = VmmError::from(error);
        self.events.failed("resize-failed", &chain(&error));
        reply.send(Err(error));
    }
}

/// Asks the guest to own `wanted` bytes beyond the `size` that it has started with. Whether it has to answer.
fn ask(live: &Live, size: u64, wanted: u64) -> Result<Option<u64>, VmmError> {
    // One without a device has nothing to be asked for: that is what `wanted` is.
    let Some(progress) = live.memory_progress() else { return Ok(None) };
    if live.state() != State::Running && progress.owned != wanted {
        return Err(NotNow { state: live.state(), must: "running" }.into());
    }
    match live.ask_for_memory(wanted) {
        Asked::Done => Ok(None),
        Asked::Waits => Ok(Some(wanted)),
        Asked::Busy { wanted } => Err(MemoryError::Busy { desired: size + wanted }.into()),
    }
}

/// Bytes of held memory that the guest of `config` owns when it has `desired` bytes of memory.
pub(super) fn held(config: &VmConfig, desired: u64) -> Result<u64, VmmError> {
    let (size, held) = (config.memory_size(), config.held_memory());
    let wanted = desired.checked_sub(size).filter(|wanted| *wanted <= held && wanted.is_multiple_of(SECTION_SIZE));
    match wanted {
        Some(wanted) => Ok(wanted),
        None if held == 0 => Err(fixed("desired_ram", desired, size)),
        None => Err(VmmError::Refused(format!(
            "desired_ram={desired}: must be {size} to {}, and {size} plus a multiple of {SECTION_SIZE}",
            size + held
        ))),
    }
}

fn fixed(field: &str, desired: u64, is: u64) -> VmmError {
    VmmError::Refused(format!("{field}={desired}: cannot change: must be absent, or {is}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use crate::sandbox::Jail;
    use crate::vmm::Restart;

    #[test]
    fn what_was_wanted_from_the_beginning_is_so_no_longer() {
        let mut vmm = Vmm::new(Restart::Here, Events::default(), Jail::none());
        let config = br#"{"payload": {"kernel": "k"}, "memory": {"size": 1073741824, "max": 17179869184}}"#;
        vmm.create(VmConfig::from_client(config).unwrap()).unwrap();
        vmm.want(Some(15 << 30));
        let wanted = |vmm: &Vmm| vmm.vm.as_ref().and_then(|kept| kept.wanted);
        let resize = |desired_ram, desired_balloon| Resize { desired_ram, desired_balloon, desired_vcpus: None };
        for sizes in [resize(Some(2 << 30), None), resize(Some(1 << 30), Some(4096)), resize(None, Some(4096))] {
            assert!(vmm.begin_to_resize(sizes).is_err(), "{sizes:?}");
            assert_eq!(wanted(&vmm), Some(15 << 30), "{sizes:?}");
        }
        assert_eq!(vmm.begin_to_resize(resize(Some(1 << 30), None)).unwrap(), None);
        assert_eq!(wanted(&vmm), None);
    }
}
