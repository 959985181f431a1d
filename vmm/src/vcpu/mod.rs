// SPDX-License-Identifier: Apache-2.0
//! vCPU threads: all of them start at once and early, do useful work, then run the guest, and rest or end when they are told to.
//!
//! A thread goes to the host's CPUs that it is to run on, makes its vCPU, says so, backs its share of the memory that the guest touches first, and waits until the boot
//! CPU may start. The boot CPU does. Secondary vCPUs back some of what it will touch next, enter `KVM_RUN` and
//! wait there, in the kernel, for their start-up IPI.

mod control;
mod error;
mod exits;
mod internal;
mod shared;
mod shares;
mod state;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use kvm_ioctls::VcpuFd;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::ender::PanicGuard;
use crate::ending::Ending;
use crate::memory::{GpaRange, guest};
use crate::sandbox::Kind;
use crate::state::VcpuState;
use crate::vm::saved::age;
use crate::vm::{self, Start};
use control::{Control, Order, Question};
use exits::After;

pub use control::{Left, Threads, is_to_end};
pub use error::VcpuError;
pub use shared::Shared;
pub use shares::{Affinity, Task, tasks};
pub use state::StateError;

/// The running threads, all waiting for the boot CPU's start.
#[derive(Debug)]
pub struct Waiting {
    vcpus: usize,
    /// Whether each has to be told when to become what was saved.
    saved: bool,
    ready: Receiver<Result<(), VcpuError>>,
    starts: Vec<Sender<Start>>,
    threads: Threads,
}

/// vCPUs that go on from what they were.
#[derive(Debug)]
pub struct Saved {
    /// What they were.
    pub vcpus: Vec<VcpuState>,
    /// When, as their machine's state says it.
    pub taken_at: u64,
}

/// Starts a thread for each of `tasks`, at most 65536. When the boot CPU starts, the others back what they are to back ahead, and
/// only then wait for theirs. vCPUs that were `saved` rest before they run.
pub fn start(shared: &Arc<Shared>, tasks: Vec<Task>, saved: Option<Saved>) -> Result<Waiting, VcpuError> {
    let mut threads = Threads::new().map_err(VcpuError::Signal)?;
    let (ready_tx, ready) = channel();
    let mut starts = Vec::new();
    let busy = Arc::new(AtomicUsize::new(tasks.iter().filter(|task| !task.early.is_empty()).count()));
    let mut vcpus = 0;
    let goes_on = saved.is_some();
    let mut states = saved
        .into_iter()
        .flat_map(|Saved { vcpus, taken_at }| vcpus.into_iter().map(move |state| Was { state, taken_at }));
    for (index, task) in (0u16..).zip(tasks) {
        let (start_tx, start) = channel();
        starts.push(start_tx);
        let saved = states.next();
        let control = Arc::new(if saved.is_some() { Control::at_rest() } else { Control::default() });
        let worker = Worker {
            index,
            task,
            saved,
            shared: Arc::clone(shared),
            busy: Arc::clone(&busy),
            ready: ready_tx.clone(),
            start,
            control: Arc::clone(&control),
        };
        let thread = thread::Builder::new()
            .name(format!("vcpu{index}"))
            .spawn(move || worker.run())
            .map_err(|source| VcpuError::Thread { index, source })?;
        threads.add(thread, control);
        vcpus += 1;
    }
    Ok(Waiting { vcpus, saved: goes_on, ready, starts, threads })
}

impl Waiting {
    /// Waits until every vCPU exists, and is what was saved.
    pub fn until_ready(&mut self) -> Result<(), VcpuError> {
        let vcpus = std::mem::take(&mut self.vcpus);
        self.all_say(vcpus)?;
        if std::mem::take(&mut self.saved) {
            self.tell(Start::Saved)?;
            self.all_say(vcpus)?;
        }
        Ok(())
    }

    fn all_say(&self, vcpus: usize) -> Result<(), VcpuError> {
        (0..vcpus).try_for_each(|_| self.ready.recv().map_err(|_| VcpuError::Lost)?)
    }

    fn tell(&self, start: Start) -> Result<(), VcpuError> {
        self.starts.iter().try_for_each(|vcpu| vcpu.send(start)).map_err(|_| VcpuError::Lost)
    }

    /// The same, since the guest may send IPIs to any of them, then lets the boot CPU `start`.
    pub fn release(mut self, start: Start) -> Result<Threads, VcpuError> {
        self.until_ready()?;
        // The boot CPU's thread comes first here, too.
        self.tell(start)?;
        Ok(self.threads)
    }
}

/// What a vCPU was.
struct Was {
    state: VcpuState,
    taken_at: u64,
}

struct Worker {
    index: u16,
    task: Task,
    /// What the vCPU was, if it goes on from there.
    saved: Option<Was>,
    shared: Arc<Shared>,
    /// How many threads still have a share to back.
    busy: Arc<AtomicUsize>,
    ready: Sender<Result<(), VcpuError>>,
    start: Receiver<Start>,
    control: Arc<Control>,
}

impl Worker {
    fn run(self) {
        let index = self.index;
        control::obey(&self.control);
        let _guard = PanicGuard::new(&self.shared.ender, format!("vCPU {index}"));
        let mut vcpu = match self.begin() {
            Ok(vcpu) => vcpu,
            Err(error) => return drop(self.ready.send(Err(error))),
        };
        // The receiver is gone when another vCPU has failed; then there is nothing to run.
        if self.ready.send(Ok(())).is_err() {
            return;
        }
        self.back_share();
        let Ok(start) = self.start.recv() else { return };
        self.back(&self.task.ahead);
        if index == 0
            && let Err(error) = vm::set_start(&vcpu, start)
        {
            return self.shared.ender.end(Ending::Kvm { vcpu: index, what: error.to_string() });
        }
        if let Some(ending) = self.run_guest(&mut vcpu) {
            self.shared.ender.end(ending);
        }
    }

    /// Makes the vCPU, where it is to run: what KVM has for it is on the node of that CPU, too. That done, the thread needs little of the kernel any more.
    fn begin(&self) -> Result<VcpuFd, VcpuError> {
        let Self { index, ref shared, .. } = *self;
        if let Some(cpus) = &self.task.affinity {
            pin(cpus).map_err(|source| VcpuError::Affinity { index, cpus: cpus.clone(), source })?;
        }
        let saved = self.saved.as_ref();
        let tsc_khz = saved.and_then(|was| was.state.tsc_khz);
        let vcpu = shared.vm.create_vcpu(index, tsc_khz).map_err(|source| VcpuError::Create { index, source })?;
        if let Some(was) = saved {
            self.goes_on(&vcpu, was)?;
        }
        shared.jail.enter(Kind::Vcpu).map_err(|source| VcpuError::Jail { index, source })?;
        Ok(vcpu)
    }

    /// Makes the vCPU what it was, once all exist: KVM has clocks go alike that are set one after the other, but if a vCPU is made in
    /// between (`kvm_synchronize_tsc()` in arch/x86/kvm/x86.c).
    fn goes_on(&self, vcpu: &VcpuFd, was: &Was) -> Result<(), VcpuError> {
        let index = self.index;
        // Whoever waits for both is gone when another vCPU has failed.
        self.ready.send(Ok(())).map_err(|_| VcpuError::Lost)?;
        self.start.recv().map_err(|_| VcpuError::Lost)?;
        state::restore(vcpu, &was.state, age(was.taken_at)).map_err(|source| VcpuError::State { index, source })?;
        // The guest may go on before this thread rests.
        self.tell_of_pause(vcpu);
        Ok(())
    }

    /// So that the guest's watchdogs do not take the pause for a lockup.
    fn tell_of_pause(&self, vcpu: &VcpuFd) {
        if let Some(what) = untold(vcpu.kvmclock_ctrl()) {
            tracing::warn!(vcpu = self.index, "the guest is not told of the pause: {what}");
        }
    }

    /// Runs the guest until this vCPU ends it, or is told to finish.
    fn run_guest(&self, vcpu: &mut VcpuFd) -> Option<Ending> {
        // One that was saved rests before.
        let mut begins = self.index == 0;
        loop {
            match self.control.order() {
                Order::Run if begins => {
                    begins = false;
                    self.shared.timeline.phase("first KVM_RUN");
                }
                Order::Run => {}
                Order::Pause => {
                    if let Some(ending) = exits::complete(vcpu, self.index, &self.shared) {
                        return Some(ending);
                    }
                    self.control.rest(|Question { msrs, answer }| drop(answer.send(state::save(vcpu, &msrs))));
                    self.tell_of_pause(vcpu);
                    continue;
                }
                Order::Finish => return None,
            }
            if let After::Over(ending) = exits::step(vcpu, self.index, &self.shared) {
                return Some(ending);
            }
        }
    }
}

/// What keeps KVM from telling the guest's clock of a pause. A guest without kvm-clock has none to tell.
fn untold(result: Result<(), kvm_ioctls::Error>) -> Option<kvm_ioctls::Error> {
    result.err().filter(|error| error.errno() != libc::EINVAL)
}

impl Worker {
    /// Backs this thread's share; the last one that had any marks the end.
    fn back_share(&self) {
        if self.task.early.is_empty() {
            return;
        }
        self.back(&self.task.early);
        if self.busy.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.timeline.phase("early memory backed");
        }
    }

    fn back(&self, ranges: &[GpaRange]) {
        for &range in ranges {
            if let Err(error) = guest::populate(&self.shared.memory, range) {
                tracing::warn!(vcpu = self.index, %range, %error, "memory is backed on first touch instead");
            }
        }
    }
}

/// Keeps the calling thread to `cpus`; those that the host has not are left out, unless none remains.
fn pin(cpus: &BTreeSet<u16>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().map(|cpu| usize::from(*cpu)).filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    /// The thread's own, or what it may not have.
    fn pinned(cpus: &[u16]) -> io::Result<Vec<usize>> {
        let cpus = cpus.iter().copied().collect();
        let thread = thread::spawn(move || {
            pin(&cpus)?;
            let set = sched_getaffinity(None)?;
            Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
        });
        thread.join().unwrap()
    }

    #[test]
    fn a_thread_runs_where_it_is_told_to() {
        let here = sched_getaffinity(None).unwrap();
        let mut here = (0..1000).filter(|cpu| here.is_set(usize::from(*cpu)));
        let (first, last) = (here.next().unwrap(), here.next_back());
        assert_eq!(pinned(&[first]).unwrap(), [usize::from(first)]);
        if let Some(last) = last {
            assert_eq!(pinned(&[last]).unwrap(), [usize::from(last)]);
        }
        assert_eq!(pinned(&[first, 1023]).unwrap(), [usize::from(first)], "what is not there is left out");
        assert!(pinned(&[1023]).is_err());
    }

    #[test]
    fn host_cpus_that_are_not_there_are_said_as_they_are_written() {
        let source = io::Error::from(io::ErrorKind::InvalidInput);
        let error = VcpuError::Affinity { index: 1, cpus: [2, 3, 4, 9].into(), source };
        let must = "cannot run on any of these: must be CPUs that this host lets flatboot use";
        assert_eq!(error.to_string(), format!("cpus.affinity=[1@[2-4,9]]: {must}"));
    }

    #[test]
    fn a_guest_without_a_clock_is_no_fault() {
        assert_eq!(untold(Ok(())), None);
        assert_eq!(untold(Err(kvm_ioctls::Error::new(libc::EINVAL))), None);
        let fault = kvm_ioctls::Error::new(libc::EFAULT);
        assert_eq!(untold(Err(fault)), Some(fault));
    }
}
