// SPDX-License-Identifier: Apache-2.0
//! Threads of devices: what they are told - rest, go on, end - and how far they are.
//!
//! Many are told at once, and then waited for with one limit for all: what hangs costs that once.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::bus::lock;

/// So many workers that are apart, each of which has a thread and files, are waited for all the same.
const MOST_APART: usize = 8;
/// How long workers may take to end. Nothing depends on that they have.
const FINISH: Duration = Duration::from_millis(500);

/// Why a device has no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its notifications cannot be waited for.
    #[error("worker {name}: its queues cannot be watched")]
    Watch {
        /// The device.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The host has no room for another thread.
    #[error("worker {name}: its thread cannot be started")]
    Thread {
        /// The device.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It was one of a VM that is over, and has not ended since.
    #[error("worker {name} of the VM before: a request has not completed within {} s", .limit.as_secs())]
    LeftBehind {
        /// The device.
        name: String,
        /// How long it had.
        limit: Duration,
    },
    /// It did not come to rest in time.
    #[error("worker {name}: a request has not completed within {} s", .limit.as_secs())]
    Busy {
        /// The device.
        name: String,
        /// How long it had.
        limit: Duration,
    },
}

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Its work.
    Work,
    /// Rest until the next order.
    Rest,
    /// End.
    Finish,
}

/// What is asked of a worker, and how far it is.
#[derive(Debug)]
pub struct Orders {
    /// For a worker that waits for events: there is something new.
    wake: EventFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what is asked and what is done, of two things")]
struct State {
    pause: bool,
    paused: bool,
    finish: bool,
    finished: bool,
    /// Nobody waits for its end any more.
    left_behind: bool,
}

impl State {
    const fn order(&self) -> Order {
        match self {
            Self { finish: true, .. } => Order::Finish,
            Self { pause: true, .. } => Order::Rest,
            _ => Order::Work,
        }
    }
}

impl Orders {
    /// Orders to work.
    pub fn new() -> io::Result<Self> {
        let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        Ok(Self { wake, state: Mutex::default(), changed: Condvar::new() })
    }

    /// What can be waited for with other events: a new order.
    pub const fn event(&self) -> &EventFd {
        &self.wake
    }

    /// The worker's: what it is to do now. What has woken it counts as heard.
    pub fn heard(&self) -> Order {
        // Non-blocking: what it says is in the state.
        let _ = self.wake.read();
        lock(&self.state).order()
    }

    /// The worker's: rests as long as it is to. False when it is to end.
    pub fn rest(&self) -> bool {
        self.rest_with(lock(&self.state)).order() != Order::Finish
    }

    fn rest_with<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.paused = true;
        self.changed.notify_all();
        let rests = |state: &mut State| state.order() == Order::Rest;
        let mut state = self.changed.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner);
        state.paused = false;
        state
    }

    /// For a worker that waits for nothing else: what `take` gives it to do, however long that takes. It rests when it is to, and
    /// there is nothing more when it is to end.
    pub fn next<T>(&self, mut take: impl FnMut() -> Option<T>) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            state = match state.order() {
                Order::Finish => return None,
                Order::Rest => self.rest_with(state),
                Order::Work => match take() {
                    Some(work) => return Some(work),
                    None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                },
            };
        }
    }

    /// The same for a worker that does all there is before it rests or ends, unless it is left behind.
    pub fn next_before_rest<T>(&self, mut take: impl FnMut() -> Option<T>) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            if state.left_behind {
                return None;
            }
            if let Some(work) = take() {
                return Some(work);
            }
            state = match state.order() {
                Order::Finish => return None,
                Order::Rest => self.rest_with(state),
                Order::Work => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Whether nobody waits for the worker any more: what it has not done has no use.
    pub fn is_left_behind(&self) -> bool {
        lock(&self.state).left_behind
    }

    /// Whoever gives such a worker something says so.
    pub fn has_more(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// Asks for rest, of a worker that may not have begun.
    pub fn ask_to_pause(&self) {
        self.change(|state| state.pause = true);
    }

    /// Whoever has something else for the worker, beside orders, says so.
    pub fn remind(&self) {
        self.change(|_| ());
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
        // A full counter has woken it already.
        let _ = self.wake.write(1);
    }

    /// Whether what is asked is `done` before `deadline`.
    fn is_done(&self, deadline: Instant, done: impl Fn(&State) -> bool) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(lock(&self.state), left, |state| !done(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        done(&state)
    }
}

/// Says that a thread is over, whichever way.
struct Over(Arc<Orders>);

impl Drop for Over {
    fn drop(&mut self) {
        lock(&self.0.state).finished = true;
        self.0.changed.notify_all();
    }
}

/// A worker whose thread runs. Dropping it ends the thread, and what it has of its device, or leaves behind one which waits
/// for a request that may never be over.
pub struct Running {
    name: String,
    orders: Arc<Orders>,
    /// There until it is waited for.
    thread: Option<JoinHandle<()>>,
    /// What it has is not the VM's: left behind, it is in nobody's way.
    apart: bool,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Running {
    /// Starts the thread `name`, which does `work` by `orders`. The first that it does is `begin`, whose result it keeps as
    /// long as it runs; without one it does nothing.
    pub fn start<G>(
        name: String,
        stack: usize,
        orders: &Arc<Orders>,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
        work: impl FnOnce(&Orders) + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let over = Over(Arc::clone(orders));
        let thread = thread::Builder::new().name(name.clone()).stack_size(stack).spawn(move || {
            let over = over;
            if let Some(_kept) = begin() {
                work(&over.0);
            }
        });
        match thread {
            Ok(thread) => Ok(Self { name, orders: Arc::clone(orders), thread: Some(thread), apart: false }),
            Err(source) => Err(WorkerError::Thread { name, source }),
        }
    }

    /// The same, of a worker that has no memory of the VM, and no disk: the next VM does not wait for one that is left behind, but
    /// for [`MOST_APART`] of them.
    #[must_use]
    pub fn apart(mut self) -> Self {
        self.apart = true;
        self
    }

    /// Asks for rest. [`await_pause`](Self::await_pause) says when it is there, so that many workers can be asked at once.
    pub fn ask_to_pause(&self) {
        self.orders.ask_to_pause();
    }

    /// Waits until the worker rests, at most for `limit`: a disk may hang. If it does not, it must be resumed all the same.
    pub fn await_pause(&self, limit: Duration) -> Result<(), WorkerError> {
        self.rests_until(Instant::now() + limit, limit)
    }

    /// The same until `deadline`, which is `limit` from when it was asked.
    fn rests_until(&self, deadline: Instant, limit: Duration) -> Result<(), WorkerError> {
        let rests = self.orders.is_done(deadline, |state| state.paused);
        if rests { Ok(()) } else { Err(WorkerError::Busy { name: self.name.clone(), limit }) }
    }

    /// Lets the worker go on.
    pub fn resume(&self) {
        self.orders.change(|state| state.pause = false);
    }

    /// Asks for the end, which dropping it waits for, so that many workers can be asked at once.
    pub fn ask_to_finish(&self) {
        self.orders.change(|state| state.finish = true);
    }

    /// Waits for the end until `deadline`, once. Whether the worker is left behind.
    fn finish_until(&mut self, deadline: Instant) -> bool {
        let Some(thread) = self.thread.take() else { return false };
        if !self.orders.is_done(deadline, |state| state.finished) {
            self.orders.change(|state| state.left_behind = true);
            tracing::info!(name = self.name, "a request is not over: its device is left behind");
            return true;
        }
        if thread.join().is_err() {
            tracing::error!(name = self.name, "a worker's thread has panicked");
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_finish();
        self.finish_until(Instant::now() + FINISH);
    }
}

/// All workers of a VM. Dropping it ends them, each as a [`Running`] does, in the time of one.
#[derive(Debug, Default)]
pub struct Workers(Vec<Running>);

impl Workers {
    /// One more.
    pub fn add(&mut self, worker: Running) {
        self.0.push(worker);
    }

    /// Brings all to rest before `deadline`, which is `limit` from when the pause was asked for. If one cannot, all go on.
    pub fn pause(&self, deadline: Instant, limit: Duration) -> Result<(), WorkerError> {
        self.0.iter().for_each(Running::ask_to_pause);
        let all = self.0.iter().try_for_each(|worker| worker.rests_until(deadline, limit));
        all.inspect_err(|_| self.resume())
    }

    /// Lets all go on.
    pub fn resume(&self) {
        self.0.iter().for_each(Running::resume);
    }

    /// Ends them. Those that are left behind.
    #[must_use]
    pub fn finish(mut self) -> Left {
        self.end()
    }

    fn end(&mut self) -> Left {
        self.0.iter().for_each(Running::ask_to_finish);
        let deadline = Instant::now() + FINISH;
        let left = self.0.iter_mut().filter_map(|worker| {
            let (name, apart) = (worker.name.clone(), worker.apart);
            worker.finish_until(deadline).then(|| Behind { name, orders: Arc::clone(&worker.orders), apart })
        });
        Left(left.collect())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Workers that were left behind. Each has a request under way, and with that memory of its VM, and its disk and the lock of that,
/// unless it is apart.
#[derive(Debug, Default)]
pub struct Left(Vec<Behind>);

#[derive(Debug)]
struct Behind {
    name: String,
    orders: Arc<Orders>,
    apart: bool,
}

impl Left {
    /// Those of another VM, too.
    pub fn add(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Waits until all are over, at most for `limit`. If one is not, it can be waited for again.
    pub fn wait(&mut self, limit: Duration) -> Result<(), WorkerError> {
        self.0.retain(|one| !one.orders.is_done(Instant::now(), |state| state.finished));
        let few_apart = self.0.iter().filter(|one| one.apart).count() < MOST_APART;
        let deadline = Instant::now() + limit;
        let waits = |one: &Behind| !(one.apart && few_apart);
        self.0.retain(|one| !(waits(one) && one.orders.is_done(deadline, |state| state.finished)));
        match self.0.iter().find(|one| waits(one)) {
            Some(one) => Err(WorkerError::LeftBehind { name: one.name.clone(), limit }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// One that gives back what it is given.
    fn echo() -> (Running, Arc<Orders>, Sender<u8>, Receiver<u8>) {
        let ((give, given), (back, got)) = (channel(), channel());
        let orders = Arc::new(Orders::new().unwrap());
        let work = move |orders: &Orders| {
            while let Some(byte) = orders.next(|| given.try_recv().ok()) {
                back.send(byte).unwrap();
            }
        };
        let running = Running::start("echo".to_owned(), 64 << 10, &orders, || Some(()), work).unwrap();
        (running, orders, give, got)
    }

    /// One that waits for something else than orders, until the sender is gone.
    fn hung(name: &str) -> (Running, Sender<()>) {
        let (release, wait) = channel::<()>();
        let orders = Arc::new(Orders::new().unwrap());
        let work = move |_: &Orders| assert!(wait.recv().is_err());
        (Running::start(name.to_owned(), 64 << 10, &orders, || Some(()), work).unwrap(), release)
    }

    #[test]
    fn nothing_is_done_during_a_pause_and_all_behind_it() {
        let (worker, orders, give, got) = echo();
        for round in 0..50 {
            worker.ask_to_pause();
            worker.await_pause(LONG).unwrap();
            give.send(round).unwrap();
            orders.has_more();
            thread::sleep(Duration::from_millis(1));
            assert!(got.try_recv().is_err(), "round {round}");
            worker.resume();
            assert_eq!(got.recv_timeout(LONG), Ok(round));
        }
    }

    #[test]
    fn a_worker_ends_also_while_it_rests() {
        for pause in [false, true] {
            let (worker, _, _give, got) = echo();
            if pause {
                worker.ask_to_pause();
                worker.await_pause(LONG).unwrap();
            }
            drop(worker);
            assert!(got.recv().is_err(), "its thread has ended, and with it what it sends by");
        }
    }

    /// A thread that has panicked has ended, too: nobody waits for it.
    #[test]
    fn a_panic_is_an_end() {
        let orders = Arc::new(Orders::new().unwrap());
        let work = |_: &Orders| panic!("on purpose");
        let worker = Running::start("panics".to_owned(), 64 << 10, &orders, || Some(()), work).unwrap();
        assert!(orders.is_done(Instant::now() + LONG, |state| state.finished));
        drop(worker);
    }

    #[test]
    fn many_that_hang_cost_the_time_of_one() {
        let (mut workers, mut releases) = (Workers::default(), Vec::new());
        for index in 0..8 {
            let (worker, release) = hung(&format!("virtio{index}"));
            workers.add(worker);
            releases.push(release);
        }
        let asked = Instant::now();
        let limit = Duration::from_millis(300);
        let error = workers.pause(asked + limit, limit).unwrap_err().to_string();
        assert_eq!(error, "worker virtio0: a request has not completed within 0 s");
        let took = asked.elapsed();
        assert!(took >= limit && took < 3 * limit, "{took:?}");
        let asked = Instant::now();
        drop(workers);
        let took = asked.elapsed();
        assert!(took >= FINISH && took < 3 * FINISH, "{took:?}");
        drop(releases);
    }

    #[test]
    fn what_is_left_behind_is_waited_for_by_name() {
        let (mut workers, (echo, ..)) = (Workers::default(), echo());
        let (hung, release) = hung("virtio3");
        workers.add(echo);
        workers.add(hung);
        let mut left = Left::default();
        left.add(workers.finish());
        let error = left.wait(Duration::from_millis(1)).unwrap_err().to_string();
        assert_eq!(error, "worker virtio3 of the VM before: a request has not completed within 0 s");
        drop(release);
        left.wait(LONG).unwrap();
        assert!(left.0.is_empty());
    }

    #[test]
    fn what_has_nothing_of_the_vm_is_not_waited_for() {
        let (mut left, mut releases) = (Left::default(), Vec::new());
        for number in 1..=MOST_APART {
            let (mut workers, (hung, release)) = (Workers::default(), hung("serial-output"));
            workers.add(hung.apart());
            releases.push(release);
            left.add(workers.finish());
            assert_eq!(left.wait(Duration::ZERO).is_ok(), number < MOST_APART, "{number}");
        }
        drop(releases);
        left.wait(LONG).unwrap();
    }

    /// One that rests is not taken for one that does not, however late it is looked at.
    #[test]
    fn one_that_hangs_is_named_and_the_others_go_on() {
        let (mut workers, (echo, orders, give, got)) = (Workers::default(), echo());
        let (hung, release) = hung("virtio3");
        workers.add(hung);
        workers.add(echo);
        let limit = Duration::from_millis(50);
        let error = workers.pause(Instant::now() + limit, limit).unwrap_err().to_string();
        assert!(error.starts_with("worker virtio3: "), "{error}");
        give.send(7).unwrap();
        orders.has_more();
        assert_eq!(got.recv_timeout(LONG), Ok(7));
        drop(release);
    }
}
