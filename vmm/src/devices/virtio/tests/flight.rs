// SPDX-License-Identifier: Apache-2.0
//! Devices with several requests in flight: their ends come in any order, and nothing is touched that the driver has taken back.

use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::disk;
use super::driver::{BUFFERS, Driver};
use crate::devices::bus::BusDevice;
use crate::devices::running::Running;
use crate::devices::virtio::block::Settings;
use crate::devices::virtio::{Block, Ready, Request, Resizer, Source, Token, VirtioDevice};
use crate::memory::GuestMemory;

const SHORT: Duration = Duration::from_millis(20);
/// No result depends on it: what is waited for comes at once, or the test fails.
const LONG: Duration = Duration::from_secs(60);
const STATUS: u64 = 0x70;
const QUEUE_READY: u64 = 0x44;
const NOTIFY: u64 = 0x50;

type Begun = (Token, GuestAddress);

/// What is over.
type Over = Mutex<Vec<Begun>>;

/// Says what it begins, and ends it when it is told to, by filling the first segment with sevens.
struct Lazy {
    begun: Sender<Begun>,
    over: Arc<Over>,
    wake: EventFd,
    resets: Sender<()>,
    /// For so many more at once.
    room: usize,
}

impl VirtioDevice for Lazy {
    fn device_type(&self) -> u32 {
        4
    }

    fn queue_sizes(&self) -> &[u16] {
        &[32]
    }

    fn sources(&self) -> Vec<Source> {
        vec![Source::readable(self.wake.as_raw_fd(), 0)]
    }

    fn begin(&mut self, token: Token, _memory: &GuestMemory, request: &Request) -> Option<u32> {
        self.room -= 1;
        self.begun.send((token, request.writable[0].address)).unwrap();
        None
    }

    fn over(&mut self, memory: &GuestMemory) -> Option<(Token, u32)> {
        let _ = self.wake.read();
        let (token, address) = self.over.lock().unwrap().pop()?;
        memory.write_obj([7u8; 4], address).unwrap();
        self.room += 1;
        Some((token, 4))
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        if self.room == 0 { Ready::WhenWoken } else { Ready::Now }
    }

    fn handle(&mut self, _queue: usize, _memory: &GuestMemory, _request: &Request) -> u32 {
        unreachable!("it is begun");
    }

    fn reset(&mut self) {
        self.resets.send(()).unwrap();
    }
}

struct Flight {
    driver: Driver,
    worker: Running,
    resizer: Arc<Resizer>,
    begun: Receiver<Begun>,
    over: Arc<Over>,
    wake: EventFd,
    resets: Receiver<()>,
}

impl Flight {
    fn new() -> Self {
        Self::with_room(32)
    }

    fn with_room(room: usize) -> Self {
        let ((begun_tx, begun), (resets_tx, resets)) = (channel(), channel());
        let over = Arc::<Over>::default();
        let wake = EventFd::new(EFD_NONBLOCK).unwrap();
        let device =
            Lazy { begun: begun_tx, over: Arc::clone(&over), wake: wake.try_clone().unwrap(), resets: resets_tx, room };
        let mut driver = Driver::new(Box::new(device));
        let resizer = driver.resizer();
        let worker = driver.start_worker();
        driver.start(0);
        Self { driver, worker, resizer, begun, over, wake, resets }
    }

    /// Requests with these heads, which are in flight when this returns.
    fn take_off(&mut self, heads: [u16; 3]) -> [Begun; 3] {
        for head in heads {
            self.driver.chain(head, &[(buffer(head), 4, true)]);
            self.driver.memory.write_obj([1u8; 4], GuestAddress(buffer(head))).unwrap();
            self.driver.offer(head);
        }
        self.driver.set(NOTIFY, 0);
        heads.map(|_| self.begun.recv_timeout(LONG).unwrap())
    }

    fn land(&self, begun: Begun) {
        self.over.lock().unwrap().push(begun);
        self.wake.write(1).unwrap();
    }

    fn until(&mut self, register: u64, value: u32) {
        while self.driver.get(register) != value {
            thread::yield_now();
        }
    }
}

fn buffer(head: u16) -> u64 {
    BUFFERS + u64::from(head) * 0x100
}

#[test]
fn ends_come_in_any_order() {
    let mut flight = Flight::new();
    let [first, second, third] = flight.take_off([0, 1, 2]);
    for (index, (begun, head)) in (0..).zip([(second, 1), (third, 2), (first, 0)]) {
        assert_eq!(flight.driver.used_index(), index);
        flight.land(begun);
        while flight.driver.used_index() == index {
            thread::yield_now();
        }
        assert_eq!(flight.driver.used(index), (head, 4));
        assert_eq!(flight.driver.bytes(buffer(head as u16), 4), [7; 4]);
    }
    assert_eq!(flight.driver.get(0x60), 1, "it is told");
}

#[test]
fn a_reset_is_over_when_the_last_one_is() {
    let mut flight = Flight::new();
    let [first, second, third] = flight.take_off([0, 1, 2]);
    assert!(flight.resets.try_recv().is_ok(), "the one before the first start");
    flight.driver.set(STATUS, 0);
    for begun in [third, first] {
        flight.land(begun);
        thread::sleep(SHORT);
        assert_eq!(flight.driver.get(STATUS), 3);
        assert!(flight.resets.try_recv().is_err(), "the device is not told before");
    }
    flight.land(second);
    flight.until(STATUS, 0);
    assert_eq!((flight.driver.used_index(), flight.driver.get(0x60)), (0, 0), "neither completed nor told");
    // And it starts again.
    flight.driver.start(0);
    let [first, ..] = flight.take_off([3, 4, 5]);
    assert!(flight.resets.recv_timeout(LONG).is_ok());
    flight.land(first);
    while flight.driver.used_index() == 0 {
        thread::yield_now();
    }
    assert_eq!(flight.driver.used(0), (3, 4));
    flight.driver.set(STATUS, 0);
    flight.over.lock().unwrap().clear();
}

#[test]
fn a_queue_reads_as_ready_until_its_last_one_is_over() {
    let mut flight = Flight::new();
    let [first, second, third] = flight.take_off([0, 1, 2]);
    flight.driver.set(QUEUE_READY, 0);
    for begun in [second, first] {
        flight.land(begun);
        thread::sleep(SHORT);
        assert_eq!(flight.driver.get(QUEUE_READY), 1);
    }
    flight.land(third);
    flight.until(QUEUE_READY, 0);
    assert_eq!(flight.driver.used_index(), 0);
    assert!(!flight.driver.needs_reset());
}

#[test]
fn a_pause_waits_for_all_and_loses_none() {
    let mut flight = Flight::new();
    let begun = flight.take_off([0, 1, 2]);
    flight.worker.ask_to_pause();
    assert!(flight.worker.await_pause(SHORT).is_err());
    for begun in begun {
        flight.land(begun);
    }
    flight.worker.await_pause(LONG).unwrap();
    assert_eq!(flight.driver.used_index(), 3);
    assert!([0, 1, 2].iter().all(|head| flight.driver.bytes(buffer(*head), 4) == [7; 4]));
    // Nothing is begun while it rests.
    flight.driver.offer(0);
    flight.driver.set(NOTIFY, 0);
    thread::sleep(SHORT);
    assert!(flight.begun.try_recv().is_err());
    flight.worker.resume();
    let begun = flight.begun.recv_timeout(LONG).unwrap();
    flight.land(begun);
}

/// What a pause that was given up began to wait for is as slow as before, and what comes after it does not wait with it.
#[test]
fn a_pause_that_is_given_up_stops_nothing() {
    let mut flight = Flight::new();
    let [slow, ..] = flight.take_off([0, 1, 2]);
    flight.worker.ask_to_pause();
    assert!(flight.worker.await_pause(SHORT).is_err());
    flight.worker.resume();
    flight.driver.chain(3, &[(buffer(3), 4, true)]);
    flight.driver.offer(3);
    flight.driver.set(NOTIFY, 0);
    let next = flight.begun.recv_timeout(LONG).unwrap();
    flight.land(next);
    while flight.driver.used_index() == 0 {
        thread::yield_now();
    }
    assert_eq!(flight.driver.used(0), (3, 4));
    flight.land(slow);
}

/// What a device that was full had no room for begins when there is room, though its driver does not notify again: it has not been
/// asked to. So with `landed` of what was in flight over while it was about to rest, all of it or not.
#[test]
fn what_had_no_room_begins_behind_a_pause() {
    for landed in [2, 3] {
        let mut flight = Flight::with_room(3);
        let begun = flight.take_off([0, 1, 2]);
        flight.driver.chain(3, &[(buffer(3), 4, true)]);
        flight.driver.offer(3);
        flight.worker.ask_to_pause();
        assert!(flight.worker.await_pause(SHORT).is_err());
        for begun in &begun[..landed] {
            flight.land(*begun);
        }
        while usize::from(flight.driver.used_index()) < landed {
            thread::yield_now();
        }
        assert_eq!(flight.worker.await_pause(SHORT).is_ok(), landed == 3);
        flight.worker.resume();
        let last = flight.begun.recv_timeout(LONG).expect("it has room");
        begun[landed..].iter().chain([&last]).for_each(|begun| flight.land(*begun));
    }
}

/// A disk on whatever this host has, whose driver resets it again and again with writes in flight, or has it paused.
#[test]
fn a_disk_with_writes_in_flight_may_be_paused_and_reset() {
    const LENGTH: u32 = 64 << 10;
    const COUNT: u16 = 10;
    let file = disk(8);
    file.as_file().set_len(u64::from(LENGTH) * u64::from(COUNT)).unwrap();
    let mut driver =
        Driver::new(Box::new(Block::new(file.as_file().try_clone().unwrap(), Settings::default()).unwrap()));
    let worker = driver.start_worker();
    let data = |head: u16| BUFFERS + 0x1_0000 + u64::from(head) * u64::from(LENGTH);
    for round in 1..40u8 {
        driver.start(0);
        for request in 0..COUNT {
            let (head, header) = (3 * request, buffer(request));
            let bytes = vec![round ^ request as u8; LENGTH as usize];
            driver.memory.write_slice(&bytes, GuestAddress(data(request))).unwrap();
            let sector = u128::from(request) * u128::from(LENGTH) / 512;
            driver.memory.write_obj(1 | sector << 64, GuestAddress(header)).unwrap();
            driver.memory.write_obj(0xeeu8, GuestAddress(header + 16)).unwrap();
            driver.chain(head, &[(header, 16, false), (data(request), LENGTH, false), (header + 16, 1, true)]);
            driver.offer(head);
        }
        driver.set(NOTIFY, 0);
        if round % 2 == 0 {
            worker.ask_to_pause();
            worker.await_pause(LONG).unwrap();
            let done = driver.used_index();
            let content = std::fs::read(file.as_path()).unwrap();
            for index in 0..done {
                let request = driver.used(index).0 as usize / 3;
                assert_eq!(driver.bytes(buffer(request as u16) + 16, 1), [0], "round {round}");
                let there = &content[request * LENGTH as usize..][..LENGTH as usize];
                assert!(there.iter().all(|byte| *byte == round ^ request as u8), "round {round}");
            }
            worker.resume();
            while driver.used_index() < COUNT {
                thread::yield_now();
            }
        }
        driver.set(STATUS, 0);
        while driver.get(STATUS) != 0 {
            thread::yield_now();
        }
        let after = (driver.used_index(), driver.bytes(BUFFERS, 0x1000));
        thread::sleep(Duration::from_millis(1));
        assert!(after == (driver.used_index(), driver.bytes(BUFFERS, 0x1000)), "touched after reset, round {round}");
    }
}

/// Each queue has a thread of its own, and all of them one disk.
#[test]
fn queues_of_a_disk_work_beside_each_other() {
    let file = disk(64);
    let settings = Settings { num_queues: 4, ..Settings::default() };
    let device = Block::new(file.as_file().try_clone().unwrap(), settings).unwrap();
    let mut driver = Driver::new(Box::new(device));
    let mut queues = [0; 2];
    driver.transport.read(0x100 + 34, &mut queues);
    assert_eq!((queues, driver.offered() >> 12 & 1), ([4, 0], 1));
    let workers = driver.start_workers();
    assert_eq!(workers.len(), 4);
    for queue in 0..4u16 {
        driver.select(queue);
        driver.start(0);
        let header = buffer(queue);
        driver.memory.write_obj(u128::from(queue) << 64, GuestAddress(header)).unwrap();
        driver.chain(0, &[(header, 16, false), (header + 0x1000, 512, true), (header + 16, 1, true)]);
        driver.offer(0);
        driver.set(NOTIFY, queue.into());
        while driver.used_index() == 0 {
            thread::yield_now();
        }
        assert_eq!(driver.bytes(header + 0x1000, 512), [queue as u8 + 1; 512]);
        // Nobody else has touched it.
        assert_eq!(driver.used(0), (0, 513));
        driver.set(STATUS, 0);
        until_reset(&mut driver);
    }
}

/// However little a disk's requests may have at once, all are done.
#[test]
fn requests_wait_until_there_is_room_for_their_lists() {
    let file = disk(64);
    let place = |number: u16| BUFFERS + 0x1000 * u64::from(number);
    for lists_max in [1, 100, 1 << 20] {
        let settings = Settings { lists_max, ..Settings::default() };
        let device = Block::new(file.as_file().try_clone().unwrap(), settings).unwrap();
        let mut driver = Driver::running(Box::new(device), 0);
        let _worker = driver.start_worker();
        for number in 0..6u16 {
            let header = place(number);
            driver.memory.write_obj(u128::from(number) << 64, GuestAddress(header)).unwrap();
            let piece = |at: u64| (header + 0x100 * at, 128, true);
            let segments = [(header, 16, false), piece(1), piece(2), piece(3), piece(4), (header + 16, 1, true)];
            driver.indirect_chain(number, &segments);
            driver.offer(number);
        }
        driver.set(NOTIFY, 0);
        let begin = Instant::now();
        while driver.used_index() < 6 {
            assert!(begin.elapsed() < LONG, "{} of 6 with {lists_max}", driver.used_index());
            thread::yield_now();
        }
        for number in 0..6u16 {
            let data = driver.bytes(place(number) + 0x100, 128);
            assert_eq!((data, driver.bytes(place(number) + 16, 1)), (vec![number as u8 + 1; 128], vec![0]));
        }
        driver.set(STATUS, 0);
        until_reset(&mut driver);
    }
}

fn until_reset(driver: &mut Driver) {
    while driver.get(STATUS) != 0 {
        thread::yield_now();
    }
}

/// A device that is made larger: it is told once, and everybody goes on.
#[test]
fn a_disk_grows_under_its_driver() {
    let file = disk(8);
    let device = Block::new(file.as_file().try_clone().unwrap(), Settings::default()).unwrap();
    let mut driver = Driver::new(Box::new(device));
    let resizer = driver.resizer();
    let _worker = driver.start_worker();
    let sectors = |driver: &mut Driver| u64::from(driver.get(0x100)) | u64::from(driver.get(0x104)) << 32;
    // Before there is a driver, nobody is told.
    resizer.resize(9 * 512, LONG).unwrap();
    assert_eq!((sectors(&mut driver), driver.get(0x60), driver.get(0xfc)), (9, 0, 1));
    driver.start(0);
    resizer.resize(20 * 512, LONG).unwrap();
    assert_eq!((sectors(&mut driver), driver.get(0x60), driver.get(0xfc)), (20, 2, 2));
    assert_eq!(driver.irq.read().unwrap(), 1);
    assert_eq!(file.as_file().metadata().unwrap().len(), 20 * 512);
    // What its owner has made larger is not cut, and all of it is the disk's.
    file.as_file().set_len(30 * 512).unwrap();
    let part = resizer.resize(25 * 512, LONG).unwrap_err().to_string();
    assert!(part.starts_with("desired_size=12800: must be at least 15360, "), "{part}");
    resizer.resize(30 * 512, LONG).unwrap();
    assert_eq!((sectors(&mut driver), file.as_file().metadata().unwrap().len()), (30, 30 * 512));
    for (size, why) in [
        (
            29 * 512,
            "desired_size=14848: must be at least 15360, what the disk or its file has: a disk is never made smaller",
        ),
        (30 * 512 + 1, "desired_size=15361: must be a multiple of 512"),
        (u64::MAX - 511, "desired_size=18446744073709551104: the host cannot make its file so large: must be less"),
    ] {
        assert_eq!(resizer.resize(size, LONG).unwrap_err().to_string(), why);
    }
    assert_eq!((sectors(&mut driver), driver.get(0xfc)), (30, 3), "nothing has changed");
    // The new sectors are there.
    let header = buffer(0);
    driver.memory.write_obj(29u128 << 64, GuestAddress(header)).unwrap();
    driver.chain(0, &[(header, 16, false), (header + 0x1000, 512, true), (header + 16, 1, true)]);
    driver.offer(0);
    driver.set(NOTIFY, 0);
    while driver.used_index() == 0 {
        thread::yield_now();
    }
    assert_eq!((driver.used(0), driver.bytes(header + 16, 1)), ((0, 513), vec![0]));
}

#[test]
fn a_disk_that_is_only_read_takes_what_its_file_has() {
    let file = disk(8);
    let settings = Settings { readonly: true, ..Settings::default() };
    let device = Block::new(file.as_file().try_clone().unwrap(), settings).unwrap();
    let mut driver = Driver::new(Box::new(device));
    let worker = driver.resizer();
    let _worker = driver.start_worker();
    let error = worker.resize(10 * 512, LONG).unwrap_err().to_string();
    assert_eq!(error, "desired_size=5120: must be at most 4096, the size of its file, which the disk may not change");
    file.as_file().set_len(10 * 512).unwrap();
    worker.resize(10 * 512, LONG).unwrap();
}

#[test]
fn a_resize_does_not_wait_for_ever_and_other_devices_have_none() {
    let flight = Flight::new();
    assert_eq!(flight.resizer.resize(512, LONG).unwrap_err().to_string(), "it has no size: must be a disk");
    flight.worker.ask_to_pause();
    flight.worker.await_pause(LONG).unwrap();
    let late = flight.resizer.resize(512, SHORT).unwrap_err().to_string();
    assert_eq!(late, "desired_size=512: the device has not begun it within 0 s, and will not");
}
