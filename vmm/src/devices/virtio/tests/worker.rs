// SPDX-License-Identifier: Apache-2.0
//! A device's thread: what keeps it from starting, and a limit that has it wait.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress};

use super::disk;
use super::driver::{BUFFERS, Driver};
use crate::devices::virtio::block::Settings;
use crate::devices::virtio::limit::{Limiter, Rate};
use crate::devices::virtio::{Block, Ready, Request, Source, VirtioDevice};
use crate::memory::GuestMemory;
use crate::observe::devices::{DeviceCounters as _, DiskCounters};

const NOTIFY: u64 = 0x50;
const SHORT: Duration = Duration::from_millis(20);
/// No result depends on it: what is waited for comes at once, or the test fails.
const LONG: Duration = Duration::from_secs(60);

/// A device that has something to say by a file.
struct Watched(RawFd);

impl VirtioDevice for Watched {
    fn device_type(&self) -> u32 {
        4
    }

    fn queue_sizes(&self) -> &[u16] {
        &[32]
    }

    fn handle(&mut self, _queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        0
    }

    fn reset(&mut self) {}

    fn sources(&self) -> Vec<Source> {
        vec![Source::readable(self.0, 0)]
    }
}

/// epoll refuses regular files: such a device would never be heard.
#[test]
fn what_cannot_be_watched_is_no_device() {
    let file = tempfile::tempfile().unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    for (descriptor, expected) in
        [(file.as_raw_fd(), Some("worker test: its queues cannot be watched")), (reader.as_raw_fd(), None)]
    {
        let error = Driver::new(Box::new(Watched(descriptor))).try_start_worker().err();
        assert_eq!(error.map(|error| error.to_string()).as_deref(), expected);
    }
}

/// A disk that does one request in `every`, and the driver of it that has asked for two reads.
fn throttled(every: Duration) -> (Driver, Arc<DiskCounters>) {
    let rate = Rate { size: 1, one_time_burst: 0, refill_time: every };
    let (file, counters) = (disk(8), Arc::<DiskCounters>::default());
    let (limiter, counted) = (Limiter::new(None, Some(rate)), Arc::clone(&counters));
    let settings = Settings { readonly: true, limiter, counters: counted, ..Settings::default() };
    let block = Block::new(file.as_file().try_clone().unwrap(), settings).unwrap();
    let mut driver = Driver::new(Box::new(block));
    driver.start(0);
    for request in 0..2u16 {
        let at = BUFFERS + u64::from(request) * 0x1000;
        // Sector 0: reads it.
        driver.memory.write_obj(0u128, GuestAddress(at)).unwrap();
        driver.chain(3 * request, &[(at, 16, false), (at + 0x100, 512, true), (at + 0x800, 1, true)]);
        driver.offer(3 * request);
    }
    (driver, counters)
}

#[test]
fn a_disk_that_has_had_its_share_waits_and_says_so() {
    let (mut driver, counters) = throttled(Duration::from_secs(3600));
    driver.kick();
    let values = || counters.values();
    assert_eq!(driver.used_index(), 1);
    assert_eq!((values()["read_ops"], values()["read_bytes"], values()["throttled"]), (1, 512, 1));
    // Asked again, it waits on, which is no other wait; one that waits is not ready.
    driver.kick();
    assert_eq!((driver.used_index(), values()["read_ops"], values()["throttled"]), (1, 1, 1));
}

/// A device that has to wait for a limit, and for something that is soon over; and how often it was asked whether it is ready.
struct Waits(Arc<AtomicU32>);

impl VirtioDevice for Waits {
    fn device_type(&self) -> u32 {
        4
    }

    fn queue_sizes(&self) -> &[u16] {
        &[32]
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ready::In(Duration::from_secs(3600))
    }

    fn retry(&self) -> Option<Duration> {
        Some(SHORT)
    }

    fn handle(&mut self, _queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        0
    }

    fn reset(&mut self) {}
}

#[test]
fn a_limit_does_not_keep_back_what_is_to_be_tried_again() {
    let asked = Arc::new(AtomicU32::new(0));
    let mut driver = Driver::new(Box::new(Waits(Arc::clone(&asked))));
    driver.start(0);
    driver.chain(0, &[(BUFFERS, 16, true)]);
    driver.offer(0);
    let _worker = driver.start_worker();
    driver.set(NOTIFY, 0);
    let begin = Instant::now();
    while asked.load(Ordering::Relaxed) < 4 {
        assert!(begin.elapsed() < LONG, "asked {asked:?} times");
        thread::yield_now();
    }
}

/// One without a place for its status, and one with too short a header.
#[test]
fn what_is_malformed_has_cost_as_much() {
    for first in [&[(BUFFERS, 16, false)][..], &[(BUFFERS, 15, false), (BUFFERS + 0x800, 1, true)]] {
        let (mut driver, counters) = throttled(Duration::from_secs(3600));
        driver.chain(0, first);
        driver.kick();
        assert_eq!((driver.used_index(), counters.values()["throttled"]), (1, 1), "{first:x?}");
    }
}

/// The second request is done when it is time, though the driver says nothing any more.
#[test]
fn what_waits_is_done_when_it_is_time() {
    let every = Duration::from_millis(100);
    let (mut driver, counters) = throttled(every);
    let begin = Instant::now();
    let _worker = driver.start_worker();
    driver.set(NOTIFY, 0);
    while driver.used_index() < 2 {
        thread::yield_now();
    }
    assert!(begin.elapsed() >= every, "{:?}", begin.elapsed());
    assert!(counters.values()["throttled"] >= 1);
}

/// A pause does not wait for a limit, and nothing is done in it when the time has come.
#[test]
fn a_disk_that_waits_rests_at_once() {
    let (mut driver, _) = throttled(Duration::from_secs(3600));
    let worker = driver.start_worker();
    driver.set(NOTIFY, 0);
    while driver.used_index() < 1 {
        thread::yield_now();
    }
    worker.ask_to_pause();
    worker.await_pause(LONG).unwrap();
    worker.resume();

    let (mut driver, _) = throttled(SHORT);
    // That of the reset, too, would give the queue a turn.
    driver.transport.notify_fds().iter().for_each(|event| drop(event.read()));
    let worker = driver.start_worker();
    worker.ask_to_pause();
    worker.await_pause(LONG).unwrap();
    driver.set(NOTIFY, 0);
    thread::sleep(3 * SHORT);
    assert_eq!(driver.used_index(), 0);
    worker.resume();
    while driver.used_index() < 2 {
        thread::yield_now();
    }
}
