// SPDX-License-Identifier: Apache-2.0
//! The one who owns a VM: it alone creates, starts, pauses, resumes and ends it, in the thread that waits for the end.
//!
//! While the VM runs, that thread does no I/O. Whatever a device or a vCPU waits for, an end is heard; what does not come to rest
//! in time is named, or left behind.

mod aftermath;
mod call;
mod error;
mod handle;
mod lifecycle;
mod live;
mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::check::chain;
use crate::config::VmConfig;
use crate::ending::Ending;
use crate::events::Events;
use crate::signals::{self, Stop};
use crate::stdio;

pub use aftermath::Aftermath;
pub use call::{Answer, Call, Counters, Info, InfoState};
pub use error::{StartError, TimelineError, VmmError};
pub use handle::{Caller, Handle, PanicGuard};
pub use lifecycle::{NotNow, State, Step};
pub use live::Origin;

use handle::Message;
use live::Live;

/// A guest that resets sooner than this...
const SOON: Duration = Duration::from_secs(1);
/// ...waits this long before it starts again: one that does nothing else leaves the host its processors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// What becomes of a guest that resets, if its owner wants it to start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// [`Vmm::serve`] returns, and somebody else starts it.
    Outside,
    /// It starts again in this process.
    Here,
}

/// The owner of a VM.
#[derive(Debug)]
pub struct Vmm {
    caller: Caller,
    messages: Receiver<Message>,
    vm: Option<Kept>,
    /// How many VMs have been started.
    started: u64,
    restart: Restart,
    stop: Stop,
    listening: bool,
    /// Whether a VM is being started, which may take long.
    starting: Arc<AtomicBool>,
    /// Signals that have come.
    signals: u32,
    events: Events,
}

/// A VM that has been created.
#[derive(Debug)]
struct Kept {
    config: VmConfig,
    stage: Stage,
}

/// Where it is.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Stage {
    Created,
    Live(Live),
    Over,
}

/// How a VM that was served has ended, and what is left to do.
#[derive(Debug)]
pub struct Over {
    /// How.
    pub ending: Ending,
    /// What is left to do.
    pub aftermath: Aftermath,
    /// Whether it is to start again, and nobody outside wants it to end.
    pub again: bool,
}

impl Vmm {
    /// An owner without a VM.
    #[must_use]
    pub fn new(restart: Restart, events: Events) -> Self {
        let (sender, messages) = channel();
        let caller = Caller(sender);
        let (stop, starting) = (Stop::default(), Arc::default());
        Self { caller, messages, vm: None, started: 0, restart, stop, listening: false, starting, signals: 0, events }
    }

    /// For whoever wants something of it.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// From now on signals are heard here, and do not end the process.
    /// One that comes while a VM is started ends it all the same, behind `leave`.
    pub fn listen(&mut self, leave: impl Fn() + Send + 'static) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.listening, true) {
            signals::listen(self.caller(), self.stop.clone(), Arc::clone(&self.starting), leave)?;
        }
        Ok(())
    }

    /// Keeps `config`, and starts nothing.
    pub fn create(&mut self, mut config: VmConfig) -> Result<(), VmmError> {
        if self.vm.is_some() {
            return Err(VmmError::AlreadyCreated);
        }
        config.name_disks();
        self.vm = Some(Kept { config, stage: Stage::Created });
        Ok(())
    }

    /// Starts the VM. Signals are heard from the moment at which its first vCPU may run, or have been before.
    pub fn boot(&mut self, origin: Origin) -> Result<(), VmmError> {
        let kept = self.vm.as_ref().ok_or(VmmError::NotCreated)?;
        if let Stage::Live(live) = &kept.stage {
            return Err(NotNow { state: live.state(), must: "created or shut down" }.into());
        }
        self.events.vm("booting");
        self.started += 1;
        let (config, handle) = (kept.config.clone(), self.caller.handle(self.started));
        self.starting.store(true, Ordering::Release);
        let live = Live::start(config, origin, handle, || {
            self.starting.store(false, Ordering::Release);
            self.listen(|| ())
        });
        self.starting.store(false, Ordering::Release);
        let live = live?;
        if let Some(kept) = &mut self.vm {
            kept.stage = Stage::Live(live);
        }
        self.events.vm("booted");
        Ok(())
    }

    /// Does what it is asked until the VM ends by itself, or this is no longer wanted; then there is none.
    pub fn serve(mut self) -> Result<Option<Over>, VmmError> {
        loop {
            // Its own way to itself is there: it can always be told something.
            let Ok(message) = self.messages.recv() else { return Ok(None) };
            match message {
                Message::End { vm, ending } if vm == self.started => {
                    let Some(over) = self.ended(ending) else { continue };
                    if !(over.again && self.restart == Restart::Here) {
                        return Ok(Some(over));
                    }
                    self.start_again(over)?;
                }
                // Another VM is there by now, and a thread of the old one was slow.
                Message::End { .. } => {}
                Message::Signal => {
                    if !self.signalled() {
                        return Ok(None);
                    }
                }
                Message::Call(Call::Quit, reply) => {
                    self.end("the VMM ends");
                    reply.send(Ok(Answer::Done));
                    return Ok(None);
                }
                Message::Call(call, reply) => {
                    let answer = self.answer(call);
                    reply.send(answer);
                }
            }
        }
    }

    fn live(&mut self) -> Option<&mut Live> {
        match &mut self.vm {
            Some(Kept { stage: Stage::Live(live), .. }) => Some(live),
            _ => None,
        }
    }

    /// The VM that runs, which does not any more.
    fn take_live(&mut self) -> Option<Live> {
        let kept = self.vm.as_mut()?;
        match std::mem::replace(&mut kept.stage, Stage::Over) {
            Stage::Live(live) => Some(live),
            other => {
                kept.stage = other;
                None
            }
        }
    }

    /// The VM has ended by itself.
    fn ended(&mut self, ending: Ending) -> Option<Over> {
        let live = self.take_live()?;
        let pause = if live.age() < SOON { BACK_OFF } else { Duration::ZERO };
        let aftermath = live.finish();
        self.events.shutdown(&ending.to_string());
        let wanted = self.vm.as_ref().is_some_and(|kept| kept.config.restart_on_reset());
        let again = wanted && ending == Ending::Reset && !self.stop.asked_within(pause);
        Some(Over { ending, aftermath, again })
    }

    /// Starts a VM that has reset, in this process.
    fn start_again(&mut self, over: Over) -> Result<(), VmmError> {
        stdio::tell(&format!("flatboot: {}", over.ending));
        report(over.aftermath);
        self.events.vm("rebooting");
        self.boot(Origin { again: true, ..Origin::default() })?;
        self.events.vm("rebooted");
        Ok(())
    }

    /// Ends the VM, if it runs, because somebody outside wants it so. Whether it ran.
    fn end(&mut self, why: &str) -> bool {
        let Some(live) = self.take_live() else { return false };
        report(live.finish());
        self.events.shutdown(why);
        true
    }

    /// The first signal asks the guest to power off, the second ends it. False if there is nothing to wait for.
    fn signalled(&mut self) -> bool {
        self.signals += 1;
        let second = self.signals > 1;
        let Some(live) = self.live() else { return false };
        if second {
            live.stop("a second signal came before the guest had powered off".to_owned());
        } else {
            live.power_off();
        }
        true
    }
}

/// The timeline of a VM that has made place for another, or for none. There is nobody left who could be told but the user.
fn report(aftermath: Aftermath) {
    if let Err(error) = aftermath.report() {
        tracing::warn!("{}", chain(&error));
    }
}
