// SPDX-License-Identifier: Apache-2.0
//! The one who owns a VM: it alone creates, starts, pauses, resumes and ends it, in the thread that waits for the end.
//!
//! While the VM runs, that thread does no I/O. Whatever a device or a vCPU waits for, an end is heard; what does not come to rest
//! in time is named, or left behind.

mod aftermath;
mod awaited;
mod call;
mod error;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod handle;
mod lifecycle;
mod live;
mod requests;
mod resizing;
mod restored;
mod saving;
#[cfg(any(test, fuzzing))]
mod unstarted;
mod writing;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{io, mem, process};

use kvm_ioctls::Kvm;

use crate::boot::{self, BootError, Entry};
use crate::chain::chain;
use crate::config::VmConfig;
use crate::devices::running::Left;
use crate::ending::Ending;
use crate::events::Events;
use crate::keeper;
use crate::leave::Leave;
use crate::sandbox::{Jail, Kind};
use crate::signals::{self, Stop};
use crate::{stdio, vcpu};

pub use aftermath::Aftermath;
pub use call::{Answer, Call, Info, InfoState, Resize, Restore};
pub use error::{MemoryError, RestoreError, SaveError, SnapshotError, StartError, TimelineError, VmmError};
pub use handle::Caller;
pub use lifecycle::{NotNow, State, Step};
pub use live::{Origin, Zero};
pub use restored::{configuration, leaves_alone};

use awaited::Awaited;
use handle::Message;
use live::{Live, Start};
use restored::Saved;
use writing::Writing;

/// A guest that resets sooner than this...
const SOON: Duration = Duration::from_secs(1);
/// ...waits this long before it starts again: one that does nothing else leaves the host its processors.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How long a VM that starts waits for requests of those before it. An emulated or a far disk may take long.
const LEFT: Duration = Duration::from_secs(30);

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
    jail: Jail,
    stop: Stop,
    listening: bool,
    /// Whether a VM is being started, which may take long.
    starting: Arc<AtomicBool>,
    /// What goes if a signal ends that.
    leave: Leave,
    /// Signals that have come.
    signals: u32,
    events: Events,
    /// The VM is being saved.
    writing: Option<Writing>,
    /// Its memory is to become more or less.
    resizing: Option<Awaited>,
    /// How many snapshots have been begun.
    snapshots: u64,
    /// Calls that came when something was due.
    put_off: VecDeque<Message>,
    /// What is still at work of VMs that are over.
    left: (vcpu::Left, Left),
}

/// A VM that has been created.
#[derive(Debug)]
struct Kept {
    config: VmConfig,
    stage: Stage,
    /// Bytes of held memory that its guest is to own from the beginning, whenever it starts.
    wanted: Option<u64>,
    /// This process is there for it.
    alone: bool,
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
    /// What its VM was made with.
    pub kvm: Kvm,
}

impl Vmm {
    /// An owner without a VM. The threads of its VMs enter `jail`; so does the one that boots a VM which nobody starts again here.
    #[must_use]
    pub fn new(restart: Restart, events: Events, jail: Jail) -> Self {
        let (sender, messages) = channel();
        let caller = Caller::new(sender);
        let (stop, starting) = (Stop::default(), Arc::default());
        Self {
            caller,
            messages,
            vm: None,
            started: 0,
            restart,
            jail,
            stop,
            listening: false,
            starting,
            leave: Leave::default(),
            signals: 0,
            events,
            writing: None,
            resizing: None,
            snapshots: 0,
            put_off: VecDeque::new(),
            left: Default::default(),
        }
    }

    /// For whoever wants something of it.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// What is to go when a signal ends the process, while a VM is started or looked at for that.
    #[must_use]
    pub fn leave(&self) -> Leave {
        self.leave.clone()
    }

    /// From now on signals are heard here. One that comes while a VM is started ends the process, and what it must not
    /// [leave](Self::leave) behind is removed: there is no guest yet that could be asked to power off. If `starting`, one is
    /// from now on. `begin` is the first that the thread does which hears them; it ends if there is nothing to keep.
    pub fn listen<G>(&mut self, starting: bool, begin: impl FnOnce() -> Option<G> + Send + 'static) -> io::Result<()> {
        self.starting.store(starting, Ordering::Release);
        self.hear(begin)
    }

    fn hear<G>(&mut self, begin: impl FnOnce() -> Option<G> + Send + 'static) -> io::Result<()> {
        if !mem::replace(&mut self.listening, true) {
            let (caller, leave) = (self.caller(), self.leave());
            let leave = move || leave.close();
            let (tell, kept) = (move || caller.signal(), keeper::is_kept());
            signals::listen(kept, tell, self.stop.clone(), Arc::clone(&self.starting), leave, begin)?;
        }
        Ok(())
    }

    /// Hears signals already if a start makes what must not be left behind: somebody has to remove it. The first process of a
    /// container always does, as it gets no signal that it does not hear.
    fn hear_early(&mut self, config: &VmConfig) -> Result<(), StartError> {
        let sockets: Vec<_> = config.sockets().map(Path::to_owned).collect();
        if (sockets.is_empty() && process::id() != 1) || self.listening {
            return Ok(());
        }
        let (mut jail, mut beside) = (self.jail.clone(), Vec::new());
        if config.landlock() && sockets.is_empty() {
            jail = jail.without_files().map_err(BootError::Jail)?;
        } else if config.landlock() {
            beside = sockets;
        }
        let (begin, inside) = jail.gate_beside(Kind::ServerSignals, beside);
        self.hear(begin).map_err(BootError::Signals)?;
        Ok(inside.wait().map_err(BootError::Jail)?)
    }

    /// Keeps `config`, and starts nothing.
    pub fn create(&mut self, mut config: VmConfig) -> Result<(), VmmError> {
        if self.vm.is_some() {
            return Err(VmmError::AlreadyCreated);
        }
        config.name_devices();
        self.vm = Some(Kept { config, stage: Stage::Created, wanted: None, alone: false });
        Ok(())
    }

    /// Starts the VM. Signals are heard from the moment at which its first vCPU may run, or have been before.
    pub fn boot(&mut self, origin: Origin) -> Result<(), VmmError> {
        let kept = self.vm.as_ref().ok_or(VmmError::NotCreated)?;
        if let Stage::Live(live) = &kept.stage {
            return Err(NotNow { state: live.state(), must: "created or shut down" }.into());
        }
        self.events.vm("booting");
        self.begin(origin, None).inspect_err(|error| self.events.failed("boot-failed", &chain(error)))?;
        self.ask_from_the_beginning();
        self.events.vm("booted");
        Ok(())
    }

    /// Has a VM go on from what was saved.
    pub fn restore(&mut self, restore: Restore, zero: Option<Zero>) -> Result<(), VmmError> {
        if self.vm.is_some() {
            return Err(VmmError::AlreadyCreated);
        }
        self.events.vm("restoring");
        let resume = restore.resume;
        self.make_saved(restore, zero).inspect_err(|error| self.events.failed("restore-failed", &chain(error)))?;
        self.events.vm("restored");
        if resume { self.resume() } else { Ok(()) }
    }

    fn make_saved(&mut self, restore: Restore, zero: Option<Zero>) -> Result<(), VmmError> {
        let path = restore.path.clone();
        // What it is read from may hang. As at a start, a signal then ends the process.
        let starting = self.starting.swap(true, Ordering::AcqRel);
        let read = restored::read(restore);
        self.starting.store(starting, Ordering::Release);
        let Saved { config, origin: saved, wanted } = read?;
        self.vm = Some(Kept { config, stage: Stage::Created, wanted, alone: false });
        let restored = self.begin(Origin { zero, again: false }, Some(saved)).map_err(|error| match error {
            VmmError::Start(StartError::Boot(source)) if source.is_of_what_was_saved() => {
                RestoreError::Boot { path, source: Box::new(source) }.into()
            }
            error => error,
        });
        if let Err(error) = restored {
            drop(self.take_live().map(|live| self.finish(live)));
            self.vm = None;
            return Err(error);
        }
        self.ask_from_the_beginning();
        Ok(())
    }

    /// Starts the VM that is kept, or has it go on from what was `saved`.
    fn begin(&mut self, origin: Origin, saved: Option<boot::Origin>) -> Result<(), VmmError> {
        let config = self.vm.as_ref().ok_or(VmmError::NotCreated)?.config.clone();
        self.started += 1;
        if !origin.again {
            self.want_anew();
        }
        let ender = self.caller.ender(self.started);
        let memory = self.caller.reports(self.started);
        let (jail, once) = (self.jail.clone(), self.restart == Restart::Outside);
        self.starting.store(true, Ordering::Release);
        let (vcpus, workers) = &mut self.left;
        let over = vcpus.wait(LEFT).map_err(VmmError::from).and_then(|()| Ok(workers.wait(LEFT)?));
        let live = over.and_then(|()| Ok(self.hear_early(&config)?)).and_then(|()| {
            let leave = self.leave();
            let start = Start { config, origin, saved, ender, memory: Box::new(memory), leave: &leave, jail, once };
            let live = Live::start(start, |control| {
                self.starting.store(false, Ordering::Release);
                let entry = Entry::new(control, Kind::Signals, "signals".to_owned());
                self.hear(|| entry.pass())
            });
            Ok(live?)
        });
        self.starting.store(false, Ordering::Release);
        let live = live.inspect_err(|_| self.leave.making().vm.clear())?;
        if let Some(kept) = &mut self.vm {
            kept.stage = Stage::Live(live);
        }
        Ok(())
    }

    /// What was wanted of an earlier VM is not wanted of the next one.
    fn want_anew(&mut self) {
        self.signals = 0;
        self.stop.forget();
    }

    /// The VM that is kept is what this process is there for: if it resets and does not start again, [`Self::serve`] fails.
    pub fn serve_it_alone(&mut self) {
        self.vm.iter_mut().for_each(|kept| kept.alone = true);
    }

    /// Does what it is asked until the VM ends by itself, or this is no longer wanted; then there is none.
    pub fn serve(mut self) -> Result<Option<Over>, VmmError> {
        self.starting.store(false, Ordering::Release);
        loop {
            match self.next() {
                Message::End { vm, ending } if vm == self.started => {
                    let Some(over) = self.ended(ending) else { continue };
                    if !(over.again && self.restart == Restart::Here) {
                        return Ok(Some(over));
                    }
                    self.start_again(over)?;
                }
                Message::Signal => {
                    self.stop.heard();
                    if !self.signalled() {
                        return Ok(None);
                    }
                }
                Message::Call(Call::Quit, reply) => {
                    self.end("the VMM ends");
                    reply.send(Ok(Answer::Done));
                    return Ok(None);
                }
                Message::Call(Call::Snapshot(path), reply) => self.snapshot(&path, reply),
                Message::Call(Call::Resize(sizes), reply) => self.resize(sizes, reply),
                Message::Call(call, reply) => {
                    let answer = self.answer(call);
                    reply.send(answer);
                    if self.is_asked_for_the_end() && self.live().is_none() {
                        return Ok(None);
                    }
                }
                Message::Written { snapshot, result } => self.written(snapshot, result),
                Message::Memory { vm, report } if vm == self.started => self.resized(report),
                // Another VM is there by now, and a thread of the old one was slow.
                Message::End { .. } | Message::Memory { .. } => {}
            }
        }
    }

    /// Whether a signal has asked for it, and nobody has started a VM since.
    const fn is_asked_for_the_end(&self) -> bool {
        self.signals > 0
    }

    /// When something is to be done for the VM. While it is saved it has no time to power off.
    fn alarm(&mut self) -> Option<Instant> {
        if self.writing.is_some() { None } else { self.live()?.alarm() }
    }

    /// What comes next: a message, or the end of a VM whose time is up. Whoever has waited too long for the guest's memory is answered.
    /// Calls, of which there may always be another one, wait for what is due.
    fn next(&mut self) -> Message {
        loop {
            let alarm = self.alarm();
            let due = alarm.into_iter().chain(self.resize_deadline()).min();
            if due.is_none_or(|due| due > Instant::now()) {
                match self.receive(due) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    // Its own way to itself is there: it can always be told something.
                    Err(RecvTimeoutError::Disconnected) => return Message::End { vm: self.started, ending: lost() },
                    Ok(message) => return message,
                }
            }
            if let Some(message) = self.put_off_calls() {
                return message;
            }
            self.resize_is_late();
            let is_late = alarm.is_some_and(|alarm| alarm <= Instant::now());
            if let Some(ending) = self.live().filter(|_| is_late).and_then(Live::late) {
                return Message::End { vm: self.started, ending };
            }
        }
    }

    fn receive(&mut self, until: Option<Instant>) -> Result<Message, RecvTimeoutError> {
        match (self.put_off.pop_front(), until) {
            (Some(call), _) => Ok(call),
            (None, Some(until)) => self.messages.recv_timeout(until.saturating_duration_since(Instant::now())),
            (None, None) => self.messages.recv().map_err(RecvTimeoutError::from),
        }
    }

    /// What has come and is no call: how the VM has ended, perhaps, which says more than that its time is up.
    fn put_off_calls(&mut self) -> Option<Message> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                call @ Message::Call(..) => self.put_off.push_back(call),
                other => return Some(other),
            }
        }
        None
    }

    fn live(&mut self) -> Option<&mut Live> {
        match &mut self.vm {
            Some(Kept { stage: Stage::Live(live), .. }) => Some(live),
            _ => None,
        }
    }

    /// The VM that runs, which does not any more.
    fn take_live(&mut self) -> Option<Live> {
        // Nobody wants what is left of it.
        self.give_up_saving();
        self.give_up_resizing();
        let kept = self.vm.as_mut()?;
        match mem::replace(&mut kept.stage, Stage::Over) {
            Stage::Live(live) => {
                // What it has made goes with it.
                self.leave.making().vm.clear();
                Some(live)
            }
            other => {
                kept.stage = other;
                None
            }
        }
    }

    /// Ends a VM. What is left of it has to be over before another starts: it has the same disks, and memory that counts twice.
    fn finish(&mut self, live: Live) -> (Aftermath, Kvm) {
        let (aftermath, kvm, (vcpus, workers)) = live.finish();
        self.left.0.add(vcpus);
        self.left.1.add(workers);
        (aftermath, kvm)
    }

    /// The VM has ended by itself, or is about to; then it is not over yet.
    fn ended(&mut self, ending: Ending) -> Option<Over> {
        let ending = self.live()?.ends(ending)?;
        let live = self.take_live()?;
        let pause = if live.age() < SOON { BACK_OFF } else { Duration::ZERO };
        let (aftermath, kvm) = self.finish(live);
        self.events.shutdown(&ending.to_string());
        let wanted = self.vm.as_ref().is_some_and(|kept| kept.config.restart_on_reset());
        let again = wanted && ending == Ending::Reset && !self.stop.asked_within(pause);
        Some(Over { ending, aftermath, again, kvm })
    }

    /// Starts a VM that has reset, in this process. One that does not start again is over, and others can be asked for, unless it
    /// was the one that this process is there for: whoever watches that has to hear of it.
    fn start_again(&mut self, over: Over) -> Result<(), VmmError> {
        stdio::tell(&format!("flatboot: {}", over.ending));
        report(over.aftermath);
        self.events.vm("rebooting");
        if let Err(error) = self.boot_again() {
            if self.vm.as_ref().is_some_and(|kept| kept.alone) {
                return Err(VmmError::NotAgain(Box::new(error)));
            }
            tracing::warn!("the VM does not start again, and is over: {}", chain(&error));
        }
        Ok(())
    }

    /// Starts a VM that was there before.
    fn boot_again(&mut self) -> Result<(), VmmError> {
        match self.boot(Origin { again: true, ..Origin::default() }) {
            Ok(()) => self.events.vm("rebooted"),
            Err(error) => {
                self.events.shutdown(&format!("it does not start again: {}", chain(&error)));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the VM, if it runs, because somebody outside wants it so. Whether it ran.
    fn end(&mut self, why: &str) -> bool {
        let Some(live) = self.take_live() else { return false };
        report(self.finish(live).0);
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

/// What is left to say when nobody has said anything.
fn lost() -> Ending {
    Ending::Internal { what: "every thread of the VM has ended without a message".to_owned() }
}
