// SPDX-License-Identifier: Apache-2.0
//! Memory that is given up, and a configuration space that changes.

use vm_memory::{Bytes, GuestAddress};

use super::driver::{BUFFERS, Driver, MEMORY_SIZE};
use crate::devices::bus::BusDevice;
use crate::devices::virtio::{Balloon, BalloonControl};
use crate::layout::PAGE_SIZE;
use crate::memory::GpaRange;
use crate::memory::guest::present;
use crate::observe::devices::{BalloonCounters, DeviceCounters};

const INFLATE: u16 = 0;
const DEFLATE: u16 = 1;
const REPORT: u16 = 2;

/// Where guests of these tests have something that they give up.
const DATA: u64 = 0x10_0000;
const PAGES: u64 = 16;

/// A driver that uses queue `queue`, what the device is controlled by, and what it counts by.
fn driver(queue: u16) -> (Driver, BalloonControl, std::sync::Arc<BalloonCounters>) {
    let balloon = Balloon::new(5 * PAGE_SIZE, true, true);
    let (control, counters) = (balloon.control(), balloon.counters());
    let driver = Driver::running_on(queue, Box::new(balloon), 0);
    driver.memory.write_slice(&vec![0xaa; (PAGES * PAGE_SIZE) as usize], GuestAddress(DATA)).unwrap();
    (driver, control, counters)
}

/// Which of the pages from [`DATA`] on still have what the guest wrote; the others must be zero.
fn kept(driver: &Driver) -> Vec<u64> {
    let whole = |page: &u64| {
        let bytes = driver.bytes(DATA + page * PAGE_SIZE, PAGE_SIZE as usize);
        let first = bytes[0];
        assert!(bytes.iter().all(|byte| *byte == first), "page {page} is neither");
        first == 0xaa
    };
    (0..PAGES).filter(whole).collect()
}

/// Gives up the pages with these numbers, counted from [`DATA`].
fn inflate(driver: &mut Driver, numbers: &[u64]) {
    for (at, number) in numbers.iter().enumerate() {
        let page = u32::try_from(DATA / PAGE_SIZE + number).unwrap();
        driver.memory.write_obj(page, GuestAddress(BUFFERS + 4 * at as u64)).unwrap();
    }
    let bytes = u32::try_from(4 * numbers.len()).unwrap();
    assert_eq!(driver.request(&[(BUFFERS, bytes, false)]), 0);
}

fn counted(counters: &BalloonCounters) -> [u64; 4] {
    let values = counters.values();
    ["inflated_bytes", "deflated_bytes", "reported_bytes", "errors"].map(|name| values[name])
}

#[test]
fn pages_that_are_given_up_are_the_hosts_again_and_no_others() {
    let (mut driver, _, counters) = driver(INFLATE);
    let there = || present(&driver.memory, GpaRange::of(DATA, PAGES * PAGE_SIZE));
    assert_eq!(there(), PAGES);
    // Up, down, and alone.
    inflate(&mut driver, &[1, 2, 3, 9, 8, 7, 12]);
    assert_eq!(present(&driver.memory, GpaRange::of(DATA, PAGES * PAGE_SIZE)), PAGES - 7);
    assert_eq!(kept(&driver), [0, 4, 5, 6, 10, 11, 13, 14, 15]);
    assert_eq!(counted(&counters), [7 * PAGE_SIZE, 0, 0, 0]);
}

#[test]
fn what_is_no_memory_is_counted_and_harms_nobody() {
    let (mut driver, _, counters) = driver(INFLATE);
    let outside = MEMORY_SIZE as u64 / PAGE_SIZE - DATA / PAGE_SIZE;
    inflate(&mut driver, &[outside, 1 << 31]);
    assert_eq!(counted(&counters), [0, 0, 0, 2]);
    // Not numbers, too many of them, and numbers that are nowhere.
    driver.request(&[(BUFFERS, 3, false)]);
    driver.request(&[(BUFFERS, 65 << 10, false)]);
    driver.request(&[(u64::MAX - 8, 4, false)]);
    assert_eq!(counted(&counters), [0, 0, 0, 5]);
    assert_eq!(kept(&driver).len() as u64, PAGES);
    // To the last page, and over it.
    inflate(&mut driver, &[outside - 1, outside]);
    assert_eq!(counted(&counters), [PAGE_SIZE, 0, 0, 6]);
}

#[test]
fn what_is_taken_back_is_counted() {
    let (mut driver, _, counters) = driver(DEFLATE);
    inflate(&mut driver, &[3, 4]);
    assert_eq!((counted(&counters), kept(&driver).len() as u64), ([0, 2 * PAGE_SIZE, 0, 0], PAGES));
}

#[test]
fn free_pages_are_given_up_whole() {
    let (mut driver, _, counters) = driver(REPORT);
    // Two whole pages; one, with parts of both neighbours; parts of two; and one behind the end of memory.
    let bytes = PAGE_SIZE as u32;
    driver.request(&[
        (DATA, 2 * bytes, true),
        (DATA + 4 * PAGE_SIZE - 8, bytes + 16, true),
        (DATA + 7 * PAGE_SIZE - 8, 16, true),
        (MEMORY_SIZE as u64, bytes, true),
    ]);
    driver.request(&[(u64::MAX - 100, 1 << 20, true)]);
    assert_eq!(kept(&driver), [2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(counted(&counters)[2], 3 * PAGE_SIZE);
    assert_eq!(counted(&counters)[3], 1, "what is not even an address has no whole page");
    // More than a pause waits for.
    driver.request(&[(DATA + 2 * PAGE_SIZE, bytes, true), (0, 1 << 30, true)]);
    assert_eq!((counted(&counters)[3], kept(&driver).len()), (2, 13));
}

#[test]
fn the_guest_is_asked_by_a_configuration_that_changes() {
    let (mut driver, control, _) = driver(INFLATE);
    let (wanted, actual, generation, cause) = (0x100, 0x104, 0xfc, 0x60);
    assert_eq!([wanted, actual, generation, cause].map(|register| driver.get(register)), [5, 0, 0, 0]);
    control.ask(7 * PAGE_SIZE + 1);
    assert_eq!([wanted, actual, generation, cause].map(|register| driver.get(register)), [7, 0, 1, 2]);
    assert_eq!(driver.irq.read().unwrap(), 1);
    control.ask(7 * PAGE_SIZE);
    assert_eq!([driver.get(wanted), driver.get(generation)], [7, 1], "nothing has changed");
    control.ask(u64::MAX);
    assert_eq!(driver.get(wanted), u32::MAX);

    driver.set(actual, 3);
    driver.set(wanted, 99);
    assert_eq!((driver.get(actual), driver.get(wanted), control.actual()), (3, u32::MAX, 3 * PAGE_SIZE));
    // A byte at a time, and over the end.
    assert_eq!(driver.transport.write(0x105, &[1]), None);
    assert_eq!(driver.transport.write(0x107, &[1, 2, 3, 4]), None);
    assert_eq!(control.actual(), (3 + 0x100 + 0x0100_0000) * PAGE_SIZE);

    driver.start(0);
    driver.kick();
    assert_eq!((control.actual(), driver.get(wanted)), (0, u32::MAX), "whoever comes next has all of its memory");
}

#[test]
fn what_was_not_asked_for_is_not_offered() {
    for (on_oom, reports, features, queues) in [(false, false, 0, 2), (true, false, 4, 2), (false, true, 32, 3)] {
        let mut driver = Driver::new(Box::new(Balloon::new(0, on_oom, reports)));
        assert_eq!(driver.offered() & 0xff_ffff, features);
        let has = |driver: &mut Driver, queue| {
            driver.set(0x30, queue);
            driver.get(0x34) > 0
        };
        let count = (0..8).filter(|queue| has(&mut driver, *queue)).count();
        assert_eq!((count, driver.get(0x8)), (queues, 5));
    }
}
