// SPDX-License-Identifier: Apache-2.0
//! Registers, negotiation, reset, broken queues.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::driver::{AVAILABLE, Driver, MEMORY_SIZE, QUEUE_SIZE};
use crate::devices::bus::BusDevice;
use crate::devices::testing::{accesses, apply};
use crate::devices::virtio::block::Settings;
use crate::devices::virtio::limit::Limiter;
use crate::devices::virtio::{Block, Rng, VirtioDevice};

const VERSION_1: u64 = 1 << 32;
const EVENT_INDEX: u64 = 1 << 29;

fn rng() -> Box<dyn VirtioDevice> {
    Box::new(Rng::new(File::open("/dev/zero").unwrap(), Limiter::default()))
}

fn block() -> Box<dyn VirtioDevice> {
    Box::new(Block::new(super::disk(4).into_file(), Settings::default()).unwrap())
}

#[test]
fn identification() {
    let mut driver = Driver::new(block());
    assert_eq!([0, 4, 8].map(|register| driver.get(register)), [0x74726976, 2, 2]);
    assert_eq!(Driver::new(rng()).get(8), 4);
    assert_eq!([0xb0, 0xb4, 0xb8, 0xbc].map(|register| driver.get(register)), [u32::MAX; 4], "no shared memory");
    driver.set(0x30, 1);
    assert_eq!([0x34, 0x44].map(|register| driver.get(register)), [0, 0], "no second queue");
    driver.set(0x14, 2);
    assert_eq!(driver.get(0x10), 0);
}

#[test]
fn configuration_space_at_any_width() {
    let file = super::disk(4);
    // Other values than 8 blocks of 512 bytes have a test of their own.
    let piece = file.as_file().metadata().unwrap().blksize();
    let mut driver = Driver::new(Box::new(Block::new(file.into_file(), Settings::default()).unwrap()));
    let mut expected = [0; 0x40];
    expected[24] = u8::try_from((piece / 512).ilog2()).unwrap();
    expected[26..28].copy_from_slice(&u16::try_from(piece / 512).unwrap().to_le_bytes());
    expected[..24].copy_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 126, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
    expected[36..60].copy_from_slice(&[0, 0, 2, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    for width in [1, 2, 4, 8] {
        for (at, bytes) in expected.chunks(width).enumerate() {
            let mut data = vec![0xff; width];
            driver.transport.read(0x100 + (at * width) as u64, &mut data);
            assert_eq!(data, bytes, "width {width}, offset {}", at * width);
        }
    }
    assert_eq!(driver.transport.write(0x100, &[0xff; 8]), None);
    assert_eq!(driver.get(0x100), 4, "the configuration cannot be written");
}

#[test]
fn only_offered_features_with_version_1_are_accepted() {
    let mut driver = Driver::new(rng());
    let offered = driver.offered();
    for (features, accepted) in
        [(offered, true), (VERSION_1, true), (0, false), (offered | 1, false), (offered | 1 << 63, false)]
    {
        for status in [0, 1, 3] {
            driver.set(0x70, status);
        }
        driver.accept(features);
        driver.set(0x70, 11);
        assert_eq!(driver.get(0x70) & 8 != 0, accepted, "{features:#x}");
        driver.set(0x70, 15);
        assert_eq!(driver.get(0x70) & 4 != 0, accepted, "DRIVER_OK needs FEATURES_OK");
    }
}

#[test]
fn steps_out_of_order_are_not_taken() {
    let mut driver = Driver::new(rng());
    driver.set(0x70, 2);
    assert_eq!(driver.get(0x70), 0);
    driver.set(0x70, 1);
    driver.set(0x70, 0x81);
    driver.set(0x70, 0x83);
    assert_eq!(driver.get(0x70), 0x81, "after FAILED only reset helps");
    driver.start(0);
}

#[test]
fn nothing_happens_before_driver_ok_and_after_reset() {
    let mut driver = Driver::running(rng(), 0);
    driver.chain(0, &[(0x1_0000, 16, true)]);
    driver.set(0x70, 0);
    driver.offer(0);
    assert_eq!(driver.kick(), 1, "it hears of the reset");
    assert_eq!(driver.used_index(), 0);
    // KVM passes notifications on without a look at the status.
    driver.transport.notify_fds()[0].write(1).unwrap();
    assert!(driver.serve());
    assert_eq!(driver.used_index(), 0);
    driver.start(0);
    assert_eq!(driver.request(&[(0x1_0000, 16, true)]), 16, "and it starts again");
}

#[test]
fn a_queue_that_is_taken_back_is_left_alone() {
    let mut driver = Driver::running(rng(), 0);
    driver.set(0x44, 0);
    assert_eq!(driver.get(0x44), 0);
    driver.chain(0, &[(0x1_0000, 16, true)]);
    driver.offer(0);
    driver.kick();
    assert_eq!(driver.used_index(), 0);
    assert!(!driver.needs_reset());
}

/// As drivers that look at the used ring themselves do, EDK2's for one.
#[test]
fn a_driver_that_wants_no_interrupt_gets_none() {
    let mut driver = Driver::running(rng(), EVENT_INDEX);
    for (flags, wanted) in [(1u16, false), (0, true), (1, false)] {
        driver.memory.write_obj(flags, GuestAddress(AVAILABLE)).unwrap();
        driver.request(&[(0x1_0000, 16, true)]);
        assert_eq!(driver.irq.read().is_ok(), wanted, "flags {flags}");
    }
}

#[test]
fn a_worker_hears_of_a_reset_at_once() {
    let mut driver = Driver::running(rng(), 0);
    driver.request(&[(0x1_0000, 16, true)]);
    assert!(driver.transport.notify_fds()[0].read().is_err());
    driver.set(0x70, 0);
    assert!(driver.transport.notify_fds()[0].read().is_ok());
}

#[test]
fn an_interrupt_stays_until_acknowledged() {
    let mut driver = Driver::running(rng(), EVENT_INDEX);
    driver.request(&[(0x1_0000, 16, true)]);
    assert_eq!(driver.irq.read().unwrap(), 1);
    assert_eq!(driver.get(0x60), 1);
    driver.set(0x64, 2);
    assert_eq!(driver.get(0x60), 1);
    driver.set(0x64, 1);
    assert_eq!(driver.get(0x60), 0);
    assert!(!driver.transport.ignores_acknowledgements());
}

#[test]
fn a_queue_that_cannot_be_asks_for_a_reset() {
    let end = MEMORY_SIZE as u64;
    for (size, rings) in [
        (0, [0x1000, 0x2000, 0x3000]),
        (3, [0x1000, 0x2000, 0x3000]),
        (128, [0x1000, 0x2000, 0x3000]),
        (0x1_0010, [0x1000, 0x2000, 0x3000]),
        (16, [0x1008, 0x2000, 0x3000]),
        (16, [0x1000, 0x2001, 0x3000]),
        (16, [0x1000, 0x2000, 0x3002]),
        (16, [end - 16, 0x2000, 0x3000]),
        (16, [0x1000, end - 4, 0x3000]),
        (16, [0x1000, 0x2000, end - 4]),
        (16, [u64::MAX - 15, 0x2000, 0x3000]),
        (16, [0x1000, 0x2000, u64::MAX - 3]),
    ] {
        let mut driver = Driver::new(rng());
        for status in [0, 1, 3] {
            driver.set(0x70, status);
        }
        driver.accept(VERSION_1);
        driver.set(0x70, 11);
        driver.describe_queue(size, rings);
        driver.set(0x70, 15);
        assert!(driver.needs_reset(), "size {size}, rings {rings:x?}");
        assert_eq!(driver.get(0x60), 2, "told by a configuration change");
        driver.start(0);
        assert!(!driver.needs_reset());
        assert_eq!(driver.request(&[(0x1_0000, 16, true)]), 16);
    }
}

#[test]
fn a_jumping_available_index_or_a_bad_head_asks_for_a_reset() {
    let mut driver = Driver::running(rng(), 0);
    driver.set_available(QUEUE_SIZE + 1);
    driver.kick();
    assert!(driver.needs_reset());
    driver.chain(0, &[(0x1_0000, 16, true)]);
    driver.set_available(1);
    driver.kick();
    assert_eq!(driver.used_index(), 0, "not touched until reset, not even for a request that is well");
    driver.start(0);
    driver.offer(QUEUE_SIZE);
    driver.kick();
    assert!(driver.needs_reset());
    driver.start(0);
    assert_eq!(driver.request(&[(0x1_0000, 16, true)]), 16);
}

proptest! {
    #[test]
    fn any_access_is_harmless(accesses in accesses(0x120), disk: bool) {
        let mut driver = Driver::new(if disk { block() } else { rng() });
        for access in accesses {
            prop_assert_eq!(apply(&mut driver.transport, &access), None);
        }
        driver.start(0);
        driver.kick();
        prop_assert!(!driver.needs_reset());
    }
}
