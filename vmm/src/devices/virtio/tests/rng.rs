// SPDX-License-Identifier: Apache-2.0
//! Random bytes.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use super::driver::{BUFFERS, Driver, MEMORY_SIZE, NEXT, WRITE};
use crate::devices::virtio::Rng;
use crate::devices::virtio::limit::{Limiter, Rate};
use crate::observe::devices::DeviceCounters as _;

/// The source is as long as `length` and all 7.
fn driver(length: usize) -> Driver {
    let file = vmm_sys_util::tempfile::TempFile::new().unwrap();
    std::fs::write(file.as_path(), vec![7; length]).unwrap();
    Driver::running(Box::new(Rng::new(file.into_file(), Limiter::default())), 0)
}

#[test]
fn every_byte_is_filled_and_no_other() {
    let mut driver = driver(1000);
    assert_eq!(driver.request(&[(BUFFERS, 10, true), (BUFFERS + 20, 5, true)]), 15);
    let mut expected = [0; 40];
    expected[..10].fill(7);
    expected[20..25].fill(7);
    assert_eq!(driver.bytes(BUFFERS, 40), expected);
}

#[test]
fn urandom_differs() {
    let mut driver = Driver::running(Box::new(Rng::new(File::open("/dev/urandom").unwrap(), Limiter::default())), 0);
    assert_eq!(driver.request(&[(BUFFERS, 64, true), (BUFFERS + 64, 64, true)]), 128);
    assert_ne!(driver.bytes(BUFFERS, 64), driver.bytes(BUFFERS + 64, 64));
}

#[test]
fn a_request_has_a_most() {
    let mut driver = driver(1 << 20);
    assert_eq!(driver.request(&[(BUFFERS, 0xc000, true), (BUFFERS + 0xc000, 0x8000, true)]), 0x1_0000);
    assert_eq!(driver.bytes(BUFFERS + 0x1_0000 - 1, 2), [7, 0]);
}

#[test]
fn bad_requests_get_nothing_and_complete() {
    let mut driver = driver(1000);
    assert_eq!(driver.request(&[(BUFFERS, 16, false)]), 0);
    assert_eq!(driver.request(&[(BUFFERS, 16, true), (BUFFERS, 16, false)]), 0);
    assert_eq!(driver.request(&[(BUFFERS, 0, true)]), 0);
    let end = MEMORY_SIZE as u64;
    assert_eq!(driver.request(&[(end, 16, true)]), 0);
    assert_eq!(driver.request(&[(u64::MAX - 4, 16, true)]), 0);
    assert_eq!(driver.request(&[(BUFFERS, 4, true), (end - 8, 16, true), (BUFFERS, 4, true)]), 4 + 8, "up to the end");
    driver.table(0, &[(BUFFERS, 16, WRITE | NEXT, 0)]);
    driver.offer(0);
    driver.kick();
    assert_eq!(driver.used(6), (0, 0), "a chain that is a loop");
    assert_eq!(driver.request(&[(BUFFERS, 16, true)]), 16, "and the next one works");
}

#[test]
fn a_source_that_ends_is_a_short_answer() {
    let mut driver = driver(10);
    assert_eq!(driver.request(&[(BUFFERS, 16, true)]), 10);
    assert_eq!(driver.request(&[(BUFFERS, 16, true)]), 0);
}

#[test]
fn a_limit_delays_and_refuses_nothing() {
    let rate = Rate { size: 64, one_time_burst: 0, refill_time: Duration::from_millis(50) };
    let rng = Rng::new(File::open("/dev/urandom").unwrap(), Limiter::new(Some(rate), None));
    let counters = rng.counters();
    let mut driver = Driver::running(Box::new(rng), 0);
    let begun = Instant::now();
    let _worker = driver.start_worker();
    for number in 0..4 {
        driver.chain(0, &[(BUFFERS, 64, true)]);
        driver.offer(0);
        driver.set(0x50, 0);
        while driver.used_index() <= number {
            assert!(begun.elapsed() < Duration::from_secs(30));
            thread::sleep(Duration::from_millis(1));
        }
    }
    // The first one empties the bucket, and each of the others waits until a byte is there again.
    let values = counters.values();
    assert_eq!((values["read_bytes"], values["errors"]), (256, 0));
    assert!(values["throttled"] > 0 && begun.elapsed() >= Duration::from_millis(100), "{:?}", begun.elapsed());
}
