// SPDX-License-Identifier: Apache-2.0
//! A device that hangs: no vCPU waits for it, no other device does, and it never touches what the driver has taken back.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use vm_memory::Bytes;

use super::driver::{BUFFERS, Driver};
use crate::devices::running::Running;
use crate::devices::virtio::limit::Limiter;
use crate::devices::virtio::{Request, VirtioDevice};
use crate::memory::GuestMemory;

const SHORT: Duration = Duration::from_millis(20);
/// No result depends on it: what is waited for comes at once, or the test fails.
const LONG: Duration = Duration::from_secs(60);
const STATUS: u64 = 0x70;
const QUEUE_READY: u64 = 0x44;
const NOTIFY: u64 = 0x50;

#[derive(Debug, PartialEq)]
enum Call {
    Activate,
    Begin,
    Reset,
    Pause,
    Resume,
}

/// Says what it is asked, and finishes a request when it is told to, by filling the first segment with sevens.
struct Stuck {
    calls: Sender<Call>,
    finish: Receiver<()>,
}

impl VirtioDevice for Stuck {
    fn device_type(&self) -> u32 {
        4
    }

    fn queue_sizes(&self) -> &[u16] {
        &[32]
    }

    fn activate(&mut self, _features: u64) {
        self.calls.send(Call::Activate).unwrap();
    }

    fn handle(&mut self, _queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        self.calls.send(Call::Begin).unwrap();
        let _ = self.finish.recv();
        memory.write_obj([7u8; 4], request.writable[0].address).unwrap();
        4
    }

    fn reset(&mut self) {
        self.calls.send(Call::Reset).unwrap();
    }

    fn pause(&mut self) {
        self.calls.send(Call::Pause).unwrap();
    }

    fn resume(&mut self) {
        self.calls.send(Call::Resume).unwrap();
    }
}

struct Hung {
    driver: Driver,
    worker: Running,
    calls: Receiver<Call>,
    finish: Sender<()>,
}

impl Hung {
    /// A device whose thread has begun a request that does not come to its end.
    fn new() -> Self {
        let (calls_tx, calls) = channel();
        let (finish, finish_rx) = channel();
        let mut driver = Driver::new(Box::new(Stuck { calls: calls_tx, finish: finish_rx }));
        let worker = driver.start_worker();
        driver.start(0);
        let mut hung = Self { driver, worker, calls, finish };
        hung.request();
        hung.expect(&[Call::Reset, Call::Activate, Call::Begin]);
        hung
    }

    fn request(&mut self) {
        self.driver.chain(0, &[(BUFFERS, 4, true)]);
        self.driver.offer(0);
        self.driver.set(NOTIFY, 0);
    }

    fn expect(&self, calls: &[Call]) {
        for call in calls {
            assert_eq!(self.calls.recv_timeout(LONG).as_ref(), Ok(call));
        }
    }

    fn until(&mut self, register: u64, value: u32) {
        while self.driver.get(register) != value {
            thread::yield_now();
        }
    }
}

/// Linux looks neither at the end of a reset nor at single steps: it looks whether its features were taken.
#[test]
fn a_driver_that_does_not_wait_is_refused() {
    let mut hung = Hung::new();
    hung.driver.set(STATUS, 0);
    for step in [1, 2, 8] {
        let status = hung.driver.get(STATUS) | step;
        hung.driver.set(STATUS, status);
    }
    assert_eq!(hung.driver.get(STATUS) & 8, 0, "what the driver before it had reached");
    hung.finish.send(()).unwrap();
    hung.until(STATUS, 0);
}

#[test]
fn a_reset_does_not_wait_and_is_over_when_the_request_is() {
    let mut hung = Hung::new();
    hung.driver.set(STATUS, 0);
    // The driver sees that it is not over, and nothing that it does now counts.
    assert_eq!(hung.driver.get(STATUS), 3);
    hung.driver.set(STATUS, 1);
    hung.driver.set(STATUS, 0);
    assert_eq!(hung.driver.get(STATUS), 3);
    assert_eq!(hung.driver.used_index(), 0);
    hung.finish.send(()).unwrap();
    hung.until(STATUS, 0);
    assert_eq!((hung.driver.used_index(), hung.driver.get(0x60)), (0, 0), "neither completed nor told");
    // The device hears of it without anything else happening. And it starts again.
    hung.expect(&[Call::Reset]);
    hung.driver.start(0);
    hung.request();
    hung.expect(&[Call::Reset, Call::Activate, Call::Begin]);
    hung.finish.send(()).unwrap();
    while hung.driver.used_index() == 0 {
        thread::yield_now();
    }
    assert_eq!(hung.driver.used(0), (0, 4));
}

#[test]
fn a_queue_that_is_taken_back_reads_as_ready_until_it_is_left_alone() {
    let mut hung = Hung::new();
    hung.driver.set(QUEUE_READY, 0);
    assert_eq!(hung.driver.get(QUEUE_READY), 1);
    hung.finish.send(()).unwrap();
    hung.until(QUEUE_READY, 0);
    assert_eq!(hung.driver.used_index(), 0);
    assert!(!hung.driver.needs_reset());
}

#[test]
fn other_devices_go_on() {
    let hung = Hung::new();
    let source = std::fs::File::open("/dev/zero").unwrap();
    let mut other = Driver::new(Box::new(crate::devices::virtio::Rng::new(source, Limiter::default())));
    let _worker = other.start_worker();
    other.start(0);
    other.chain(0, &[(BUFFERS, 16, true)]);
    other.offer(0);
    other.set(NOTIFY, 0);
    while other.used_index() == 0 {
        thread::yield_now();
    }
    drop(hung);
}

#[test]
fn a_pause_waits_for_the_request_but_not_for_ever() {
    let mut hung = Hung::new();
    hung.worker.ask_to_pause();
    let error = hung.worker.await_pause(SHORT).unwrap_err().to_string();
    assert_eq!(error, "worker test: a request has not completed within 0 s");
    hung.finish.send(()).unwrap();
    hung.worker.await_pause(LONG).unwrap();
    hung.expect(&[Call::Pause]);
    // Nothing is begun while it rests.
    hung.request();
    thread::sleep(SHORT);
    assert_eq!(hung.calls.try_recv().ok(), None);
    hung.worker.resume();
    hung.expect(&[Call::Resume, Call::Begin]);
}
