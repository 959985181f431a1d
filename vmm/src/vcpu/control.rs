// SPDX-License-Identifier: Apache-2.0
//! What vCPU threads are told: run, rest, finish. One that is in the guest is interrupted by a signal. One that rests can be asked what
//! its vCPU is like.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vmm_sys_util::signal::{Killable, SIGRTMIN, register_signal_handler};

use super::VcpuError;
use super::state::StateError;
use crate::devices::bus::lock;
use crate::state::VcpuState;

/// A signal that comes right before `KVM_RUN` interrupts nothing; the next one will.
const KICK_EVERY: Duration = Duration::from_millis(1);

/// What a thread is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Run the guest.
    Run,
    /// Rest until the next order.
    Pause,
    /// End.
    Finish,
}

/// A question to a thread that rests: what its vCPU is like, with those of these model-specific registers that it has.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) msrs: Arc<[u32]>,
    pub(super) answer: Sender<Result<VcpuState, StateError>>,
}

/// How far a thread is.
#[derive(Debug, Default)]
struct Stage {
    rests: bool,
    question: Option<Question>,
}

/// A thread's orders, and how it says that it obeys.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// An [`Order`]. Looked at before each run of the guest, so without a lock; changed under that of `stage`.
    order: AtomicU8,
    stage: Mutex<Stage>,
    changed: Condvar,
}

impl Control {
    /// For a thread that is to rest before it has run.
    pub(super) fn at_rest() -> Self {
        Self { order: AtomicU8::new(1), ..Self::default() }
    }

    pub(super) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Run,
            1 => Order::Pause,
            _ => Order::Finish,
        }
    }

    /// The thread's: rests while it is told to, and has questions answered.
    pub(super) fn rest(&self, answer: impl Fn(Question)) {
        let mut stage = lock(&self.stage);
        stage.rests = true;
        self.changed.notify_all();
        while self.order() == Order::Pause {
            // Nobody waits for the lock meanwhile but whoever has asked.
            stage.question.take().into_iter().for_each(&answer);
            stage = self.changed.wait(stage).unwrap_or_else(PoisonError::into_inner);
        }
        *stage = Stage::default();
    }

    /// Waits until the thread says something, or for `time`.
    fn wait(&self, time: Duration) {
        drop(self.changed.wait_timeout(lock(&self.stage), time));
    }

    fn ask(&self, question: Question) {
        lock(&self.stage).question = Some(question);
        self.changed.notify_all();
    }

    fn give(&self, order: Order) {
        let _stage = lock(&self.stage);
        let number = match order {
            Order::Run => 0,
            Order::Pause => 1,
            Order::Finish => 2,
        };
        self.order.store(number, Ordering::Release);
        self.changed.notify_all();
    }
}

thread_local! {
    static OWN: OnceCell<Arc<Control>> = const { OnceCell::new() };
}

/// This thread's orders are `control`'s.
pub(super) fn obey(control: &Arc<Control>) {
    OWN.with(|own| drop(own.set(Arc::clone(control))));
}

/// Whether this is the thread of a vCPU that is to end. It is interrupted until it has.
#[must_use]
pub fn is_to_end() -> bool {
    OWN.with(|own| own.get().is_some_and(|control| control.order() == Order::Finish))
}

/// How long a thread that rests may take to say what its vCPU is like.
const ANSWER: Duration = Duration::from_secs(5);
/// How long vCPUs that nobody wants any more may take to end. Nothing depends on that they have.
const FINISH: Duration = Duration::from_millis(500);

/// All vCPU threads. Dropping it ends them.
#[derive(Debug)]
pub struct Threads(Vec<(JoinHandle<()>, Arc<Control>)>);

impl Threads {
    /// None yet. From here on the signal that interrupts vCPUs does nothing else.
    pub(super) fn new() -> io::Result<Self> {
        extern "C" fn nothing(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        register_signal_handler(SIGRTMIN(), nothing).map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        Ok(Self(Vec::new()))
    }

    pub(super) fn add(&mut self, thread: JoinHandle<()>, control: Arc<Control>) {
        self.0.push((thread, control));
    }

    /// Brings all to rest, within `limit`: when this returns, none runs the guest. If one cannot, all go on; one that has ended cannot,
    /// as the VM ends by what it has said last.
    pub fn pause(&self, limit: Duration) -> Result<(), VcpuError> {
        let deadline = Instant::now() + limit;
        self.order(Order::Pause);
        for (index, (thread, control)) in self.0.iter().enumerate() {
            let resting = || lock(&control.stage).rests || thread.is_finished();
            if !kick_until(thread, control, deadline, resting) {
                self.resume();
                return Err(VcpuError::Busy { index });
            }
        }
        if let Some(index) = self.0.iter().position(|(thread, _)| thread.is_finished()) {
            self.resume();
            return Err(VcpuError::Ended { index });
        }
        Ok(())
    }

    /// Lets all go on.
    pub fn resume(&self) {
        self.order(Order::Run);
    }

    /// What each vCPU is like, with those of the model-specific registers `msrs` that it has. All of them rest.
    pub fn save(&self, msrs: &Arc<[u32]>) -> Result<Vec<VcpuState>, VcpuError> {
        let ask = |(_, control): &(JoinHandle<()>, Arc<Control>)| {
            let (answer, answered) = channel();
            control.ask(Question { msrs: Arc::clone(msrs), answer });
            answered
        };
        let all: Vec<_> = self.0.iter().map(ask).collect();
        let answers = all.iter().zip(0u16..).map(|(answered, index)| {
            // In a moment. A thread that is gone never answers.
            let answer = answered.recv_timeout(ANSWER).map_err(|_| VcpuError::Lost)?;
            answer.map_err(|source| VcpuError::State { index, source })
        });
        answers.collect()
    }

    /// Ends all threads, and waits for them within `limit`: those that the host holds up for longer are left behind.
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Left {
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> Left {
        self.order(Order::Finish);
        let mut left = Left(std::mem::take(&mut self.0));
        left.end(Instant::now() + limit);
        left
    }

    fn order(&self, order: Order) {
        self.0.iter().for_each(|(_, control)| control.give(order));
    }
}

/// vCPU threads that are to end and have not. Each has all memory of its VM, and its devices.
#[derive(Debug, Default)]
pub struct Left(Vec<(JoinHandle<()>, Arc<Control>)>);

impl Left {
    /// Those of another VM, too.
    pub fn add(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Waits until all are over, at most for `limit`. If one is not, it can be waited for again.
    pub fn wait(&mut self, limit: Duration) -> Result<(), VcpuError> {
        self.end(Instant::now() + limit);
        if self.0.is_empty() { Ok(()) } else { Err(VcpuError::LeftBehind { limit }) }
    }

    /// All are interrupted until they are over: none stands in for another.
    fn end(&mut self, deadline: Instant) {
        loop {
            let ended = self.0.extract_if(.., |(thread, _)| thread.is_finished());
            if ended.map(|(thread, _)| thread.join()).filter(Result::is_err).count() > 0 {
                tracing::error!("a vCPU thread has panicked");
            }
            let Some((_, first)) = self.0.first().filter(|_| Instant::now() < deadline) else { return };
            for (thread, _) in &self.0 {
                interrupt(thread);
            }
            first.wait(KICK_EVERY);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end(FINISH);
    }
}

/// Interrupts `thread` again and again until it is `done`. False when the deadline comes first.
fn kick_until(thread: &JoinHandle<()>, control: &Control, deadline: Instant, done: impl Fn() -> bool) -> bool {
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        interrupt(thread);
        control.wait(KICK_EVERY);
    }
    true
}

/// A thread that is gone cannot be interrupted, nor need it be.
fn interrupt(thread: &JoinHandle<()>) {
    let _ = thread.kill(SIGRTMIN());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Threads that count.
    fn counting(threads: usize) -> (Threads, Arc<AtomicU64>) {
        let counter = Arc::new(AtomicU64::new(0));
        let mut all = Threads::new().unwrap();
        for _ in 0..threads {
            let (control, counter) = (Arc::new(Control::default()), Arc::clone(&counter));
            let own = Arc::clone(&control);
            let thread = thread::spawn(move || {
                loop {
                    match own.order() {
                        Order::Run => {
                            counter.fetch_add(1, Ordering::SeqCst);
                        }
                        Order::Pause => own.rest(drop),
                        Order::Finish => return,
                    }
                    thread::yield_now();
                }
            });
            all.add(thread, control);
        }
        (all, counter)
    }

    #[test]
    fn nobody_runs_during_a_pause_and_all_do_behind_it() {
        let (threads, counter) = counting(3);
        for _ in 0..50 {
            threads.pause(LONG).unwrap();
            let before = counter.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
            assert_eq!(counter.load(Ordering::SeqCst), before);
            threads.resume();
            while counter.load(Ordering::SeqCst) == before {
                thread::yield_now();
            }
        }
        threads.finish(LONG).wait(LONG).unwrap();
    }

    #[test]
    fn a_paused_thread_can_finish() {
        let (threads, counter) = counting(2);
        threads.pause(LONG).unwrap();
        threads.finish(LONG).wait(LONG).unwrap();
        assert_eq!(Arc::strong_count(&counter), 1, "both threads are gone");
    }

    /// The second one looks for its orders only when it is interrupted, as one in the guest does.
    #[test]
    fn one_that_does_not_end_is_left_behind_alone() {
        let mut threads = Threads::new().unwrap();
        let (over, until_over) = channel::<()>();
        let deaf = thread::spawn(move || until_over.recv().unwrap_or_default());
        threads.add(deaf, Arc::default());
        let control = Arc::new(Control::default());
        let own = Arc::clone(&control);
        let (ended, has_ended) = channel();
        let in_the_guest = thread::spawn(move || {
            // Before its first look, too.
            let interrupted = || rustix::event::poll(&mut [], None).is_err();
            while !(interrupted() && own.order() == Order::Finish) {}
            ended.send(()).unwrap();
        });
        threads.add(in_the_guest, control);
        let mut left = threads.finish(Duration::from_millis(200));
        has_ended.recv_timeout(LONG).unwrap();
        let error = left.wait(Duration::from_millis(1)).unwrap_err().to_string();
        assert_eq!(error, "a vCPU of the VM before: has not stopped within 0 s: this host is too slow");
        drop(over);
        left.wait(LONG).unwrap();
    }

    #[test]
    fn who_does_not_answer_is_lost() {
        let (threads, _) = counting(2);
        threads.pause(LONG).unwrap();
        let none: Arc<[u32]> = Arc::new([]);
        let error = threads.save(&none).unwrap_err().to_string();
        assert_eq!(error, "a vCPU thread ended without a message");
        threads.finish(LONG).wait(LONG).unwrap();
    }

    /// What it has said last may be that the guest resets: the VM would go on without having been told to.
    #[test]
    fn who_has_ended_does_not_rest() {
        let (mut threads, counter) = counting(1);
        let ended = thread::spawn(|| ());
        while !ended.is_finished() {
            thread::yield_now();
        }
        threads.add(ended, Arc::default());
        let error = threads.pause(LONG).unwrap_err().to_string();
        assert_eq!(error, "vCPU 1: has ended: the VM is about to be over");
        let before = counter.load(Ordering::SeqCst);
        while counter.load(Ordering::SeqCst) == before {
            thread::yield_now();
        }
        threads.finish(LONG).wait(LONG).unwrap();
    }

    /// One that waits for somebody is not waited for, and the others go on.
    #[test]
    fn a_thread_that_cannot_rest_is_named() {
        let (mut threads, counter) = counting(1);
        let (release, wait) = channel::<()>();
        let waits = thread::spawn(move || {
            let _ = wait.recv();
        });
        threads.add(waits, Arc::default());
        let error = threads.pause(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.starts_with("vCPU 1: has not stopped"), "{error}");
        let before = counter.load(Ordering::SeqCst);
        while counter.load(Ordering::SeqCst) == before {
            thread::yield_now();
        }
        drop(release);
        threads.finish(LONG).wait(LONG).unwrap();
    }
}
