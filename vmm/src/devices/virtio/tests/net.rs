// SPDX-License-Identifier: Apache-2.0
//! Frames, over a socket that keeps them apart as a tap does.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::driver::{BUFFERS, Driver, MEMORY_SIZE, QUEUE_SIZE};
use crate::devices::virtio::Net;
use crate::devices::virtio::limit::{BothWays, Limiter, Rate};
use crate::devices::virtio::net::tap::Tap;
use crate::devices::virtio::net::{Interface, Mac};
use crate::observe::devices::DeviceCounters;

const RECEIVE: u16 = 0;
const SEND: u16 = 1;
const MRG_RXBUF: u64 = 1 << 15;
/// Bytes of a header.
const HEADER: usize = 12;

/// A device, and the host's end of its tap.
fn net(limits: BothWays) -> (Net, UnixDatagram) {
    let (ours, tap) = UnixDatagram::pair().unwrap();
    for end in [&ours, &tap] {
        end.set_nonblocking(true).unwrap();
    }
    let mac: Mac = "52:54:00:12:34:56".parse().unwrap();
    let interface = Interface { mac, mtu: Some(1400), queue_size: 256 };
    let link = Box::new(Tap::pretended(File::from(OwnedFd::from(tap))).unwrap());
    (Net::new(link, Vec::new(), "test".to_owned(), interface, limits), ours)
}

fn running(queue: u16, refused: u64) -> (Driver, UnixDatagram) {
    let (net, host) = net(BothWays::default());
    (Driver::running_on(queue, Box::new(net), refused), host)
}

/// A frame of so many bytes behind its header.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; HEADER];
    frame.extend((0..length).map(|at| (at % 251) as u8));
    frame
}

/// The same as the guest is to see it.
fn seen(length: usize, buffers: u16) -> Vec<u8> {
    let mut seen = frame(length);
    seen[10..12].copy_from_slice(&buffers.to_le_bytes());
    seen
}

fn taken(host: &UnixDatagram) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1 << 17];
    let length = host.recv(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

#[test]
fn the_guest_is_told_its_address_and_that_the_link_is_up() {
    let (mut driver, _host) = running(RECEIVE, 0);
    let mut config = [0; 12];
    crate::devices::bus::BusDevice::read(&mut driver.transport, 0x100, &mut config);
    assert_eq!(config, [0x52, 0x54, 0, 0x12, 0x34, 0x56, 1, 0, 0, 0, 0x78, 5]);
}

#[test]
fn queues_have_the_room_that_is_asked_for() {
    let (link, _other) = UnixDatagram::pair().unwrap();
    let link = Box::new(Tap::pretended(File::from(OwnedFd::from(link))).unwrap());
    let interface = Interface { mac: Mac::of(0, 0), mtu: None, queue_size: 64 };
    let net = Net::new(link, Vec::new(), "test".to_owned(), interface, BothWays::default());
    let mut driver = Driver::new(Box::new(net));
    for (queue, most) in [(0, 64), (1, 64), (2, 0)] {
        driver.set(0x30, queue);
        assert_eq!(driver.get(0x34), most, "queue {queue}");
    }
}

#[test]
fn frames_go_out_as_they_are_cut_in_any_way() {
    let (mut driver, host) = running(SEND, 0);
    let sent = frame(1500);
    driver.memory.write_slice(&sent, GuestAddress(BUFFERS)).unwrap();
    let at = |from: u64, length: u32| (BUFFERS + from, length, false);
    for segments in [vec![at(0, 1512)], vec![at(0, 12), at(12, 1500)], vec![at(0, 5), at(5, 100), at(105, 1407)]] {
        assert_eq!(driver.request(&segments), 0);
        assert_eq!(taken(&host).unwrap(), sent, "{segments:?}");
    }
}

#[test]
fn bad_frames_go_nowhere_and_complete() {
    let (mut driver, host) = running(SEND, 0);
    let end = MEMORY_SIZE as u64;
    for segments in [
        vec![(BUFFERS, 12, false)],
        vec![(BUFFERS, 70_000, false)],
        vec![(BUFFERS, u32::MAX, false), (BUFFERS, u32::MAX, false)],
        vec![(BUFFERS, 12, false), (end - 4, 60, false)],
        vec![(u64::MAX - 4, 60, false)],
        vec![(BUFFERS, 60, true), (BUFFERS, 60, false)],
        vec![(BUFFERS, 60, true)],
    ] {
        assert_eq!(driver.request(&segments), 0);
        assert_eq!(taken(&host), None, "{segments:?}");
    }
    assert_eq!(driver.request(&[(BUFFERS, 60, false)]), 0);
    assert_eq!(taken(&host).unwrap().len(), 60, "and the next one works");
}

#[test]
fn a_frame_comes_in_as_many_buffers_as_it_needs() {
    let (mut driver, host) = running(RECEIVE, 0);
    for head in 0..4 {
        driver.chain(head, &[(BUFFERS + 1000 * u64::from(head), 1000, true)]);
        driver.offer(head);
    }
    driver.kick();
    assert_eq!(driver.used_index(), 0, "there is nothing yet");
    host.send(&frame(60)).unwrap();
    host.send(&frame(2500)).unwrap();
    driver.kick();
    assert_eq!(driver.used_index(), 4);
    let used: Vec<_> = (0..4).map(|index| driver.used(index)).collect();
    assert_eq!(used, [(0, 72), (1, 1000), (2, 1000), (3, 512)]);
    assert_eq!(driver.bytes(BUFFERS, 72), seen(60, 1));
    assert_eq!(driver.bytes(BUFFERS + 1000, 2512), seen(2500, 3));
}

#[test]
fn a_frame_waits_for_enough_buffers() {
    let (mut driver, host) = running(RECEIVE, 0);
    host.send(&frame(2500)).unwrap();
    for head in 0..3 {
        driver.chain(head, &[(BUFFERS + 1000 * u64::from(head), 1000, true)]);
    }
    for head in 0..2 {
        driver.offer(head);
        driver.kick();
        assert_eq!(driver.used_index(), 0, "not a part of it");
    }
    driver.offer(2);
    driver.kick();
    assert_eq!((driver.used_index(), driver.used(0), driver.used(2)), (3, (0, 1000), (2, 512)));
    assert_eq!(driver.bytes(BUFFERS, 2512), seen(2500, 3));
}

#[test]
fn a_frame_that_fits_no_queue_is_dropped() {
    let (mut driver, host) = running(RECEIVE, 0);
    host.send(&frame(60_000)).unwrap();
    host.send(&frame(20)).unwrap();
    for head in 0..QUEUE_SIZE {
        driver.chain(head, &[(BUFFERS + 32 * u64::from(head), 32, true)]);
        driver.offer(head);
    }
    driver.kick();
    assert_eq!((driver.used_index(), driver.used(0)), (1, (0, 32)));
    assert_eq!(driver.bytes(BUFFERS, 32), seen(20, 1));
}

#[test]
fn a_driver_that_does_not_merge_gets_what_fits() {
    let (mut driver, host) = running(RECEIVE, MRG_RXBUF);
    host.send(&frame(2500)).unwrap();
    host.send(&frame(500)).unwrap();
    for head in 0..2 {
        driver.chain(head, &[(BUFFERS + 1000 * u64::from(head), 1000, true)]);
        driver.offer(head);
    }
    driver.kick();
    assert_eq!((driver.used_index(), driver.used(0), driver.used(1)), (2, (0, 12), (1, 512)));
    assert_eq!(driver.bytes(BUFFERS, 12), seen(0, 1), "a frame of nothing");
    assert_eq!(driver.bytes(BUFFERS + 1000, 512), seen(500, 1));
}

#[test]
fn bad_buffers_cost_a_frame_and_complete() {
    let (mut driver, host) = running(RECEIVE, 0);
    let end = MEMORY_SIZE as u64;
    for segments in [
        vec![(BUFFERS, 11, true)],
        vec![(BUFFERS, 1000, false)],
        vec![(end - 4, 1000, true)],
        vec![(BUFFERS, 20, true), (u64::MAX - 4, 1000, true)],
    ] {
        host.send(&frame(100)).unwrap();
        driver.request(&segments);
    }
    host.send(&frame(100)).unwrap();
    assert_eq!(driver.request(&[(BUFFERS, 1000, true)]), 112);
    assert_eq!(driver.bytes(BUFFERS, 112), seen(100, 1));
    assert!(!driver.needs_reset());
}

#[test]
fn a_thread_hears_the_host() {
    let (mut driver, host) = running(RECEIVE, 0);
    driver.chain(0, &[(BUFFERS, 1000, true)]);
    driver.offer(0);
    let _running = driver.start_worker();
    driver.set(0x50, RECEIVE.into());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(driver.used_index(), 0);
    host.send(&frame(100)).unwrap();
    let begin = Instant::now();
    while driver.used_index() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody has heard");
        std::thread::yield_now();
    }
    assert_eq!(driver.bytes(BUFFERS, 112), seen(100, 1));
}

#[test]
fn a_limit_is_kept_in_each_direction() {
    let rate = Rate { size: 1, one_time_burst: 0, refill_time: Duration::from_secs(3600) };
    let limited = || Limiter::new(None, Some(rate));
    let (device, host) = net(BothWays { received: limited(), sent: limited() });
    let counters = device.counters();
    let mut driver = Driver::running_on(SEND, Box::new(device), 0);
    for head in 0..2 {
        driver.chain(head, &[(BUFFERS, 60, false)]);
        driver.offer(head);
    }
    driver.kick();
    assert!(taken(&host).is_some() && taken(&host).is_none(), "one an hour");
    let values = counters.values();
    assert_eq!((values["tx_frames"], values["tx_bytes"], values["throttled"]), (1, 48, 1));
}

proptest! {
    /// However frames and buffers are cut, what the guest gets is what the host has sent, in order.
    #[test]
    fn nothing_is_lost_or_mixed(
        lengths in prop::collection::vec(1usize..5000, 1..6),
        buffers in prop::collection::vec(prop::collection::vec(12u32..2000, 1..3), 1..12),
    ) {
        let (mut driver, host) = running(RECEIVE, 0);
        for length in &lengths {
            host.send(&frame(*length)).unwrap();
        }
        let (mut head, mut at) = (0, BUFFERS);
        let mut places = Vec::new();
        for buffer in &buffers {
            let segments: Vec<_> = buffer.iter().map(|length| {
                let segment = (at, *length, true);
                at += u64::from(*length) + 100;
                segment
            }).collect();
            driver.chain(head, &segments);
            driver.offer(head);
            head += buffer.len() as u16;
            places.push(segments);
        }
        driver.kick();
        let mut got = Vec::new();
        for index in 0..driver.used_index() {
            let (_, mut left) = driver.used(index);
            for (address, length, _) in &places[usize::from(index)] {
                let part = left.min(*length);
                got.extend(driver.bytes(*address, part as usize));
                left -= part;
            }
            prop_assert_eq!(left, 0);
        }
        let mut rest = got.as_slice();
        let mut used = 0;
        for length in &lengths {
            if rest.is_empty() {
                break;
            }
            let number = u16::from_le_bytes([rest[10], rest[11]]);
            let expected = seen(*length, number);
            prop_assert_eq!(rest.get(..expected.len()), Some(expected.as_slice()));
            rest = &rest[expected.len()..];
            used += number;
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(used, driver.used_index());
    }
}
