// SPDX-License-Identifier: Apache-2.0
//! Frames over a stream, as to passt.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::net::sockopt;
use vm_memory::{Bytes, GuestAddress};

use super::driver::{BUFFERS, Driver, QUEUE_SIZE};
use crate::devices::bus::BusDevice;
use crate::devices::virtio::Net;
use crate::devices::virtio::limit::BothWays;
use crate::devices::virtio::net::stream::Stream;
use crate::devices::virtio::net::{Interface, Link, Mac};
use crate::observe::devices::DeviceCounters;
use crate::state::{DeviceState, LaneState};

const RECEIVE: u16 = 0;
const SEND: u16 = 1;
const HEADER: usize = 12;

/// A connection, and its other end.
fn stream() -> (Stream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Stream::new(ours.into()).unwrap(), theirs)
}

fn net(stream: Stream) -> Net {
    let interface = Interface { mac: Mac::of(0, 0), mtu: None, queue_size: 256 };
    Net::new(Box::new(stream), Vec::new(), "test".to_owned(), interface, BothWays::default())
}

/// vhost-net keeps more of an interface than flatboot does, and less.
#[test]
fn what_vhost_net_served_goes_on_by_nothing_else() {
    let mut driver = Driver::running(Box::new(net(stream().0)), 0);
    let Ok(Some(DeviceState::Virtio(mut state))) = driver.transport.save() else { panic!("nothing is in flight") };
    let mut other = driver.with_device(Box::new(net(stream().0)));
    other.transport.restore(&DeviceState::Virtio(state.clone())).unwrap();
    state.lanes = vec![LaneState::Vhost { available: vec![0; 2] }];
    let error = other.transport.restore(&DeviceState::Virtio(state)).unwrap_err().to_string();
    assert_eq!(error, "vhost is on: must be off, or --net be given with vhost=on");
}

/// A frame of so many bytes behind its length.
fn sent(length: usize) -> Vec<u8> {
    let mut sent = u32::try_from(length).unwrap().to_be_bytes().to_vec();
    sent.extend((0..length).map(|at| (at % 251) as u8));
    sent
}

/// The next frame that comes out of `stream`, if one does.
fn received(stream: &mut Stream) -> Result<Vec<u8>, ErrorKind> {
    let mut buffer = vec![0xff; 1 << 17];
    let length = stream.receive(&mut buffer).map_err(|error| error.kind())?;
    buffer.truncate(length);
    Ok(buffer)
}

fn frame(length: usize) -> Vec<u8> {
    [&[0; HEADER], &sent(length)[4..]].concat()
}

#[test]
fn there_is_nothing_but_frames() {
    let mut driver = Driver::running_on(RECEIVE, Box::new(net(stream().0)), 0);
    // MAC, MRG_RXBUF and STATUS; no checksums, no segmentation.
    assert_eq!(driver.offered() & 0xff_ffff, 1 << 5 | 1 << 15 | 1 << 16);
}

#[test]
fn frames_are_put_together() {
    let (mut stream, mut other) = stream();
    assert_eq!(received(&mut stream), Err(ErrorKind::WouldBlock));
    for byte in sent(60) {
        assert_eq!(received(&mut stream), Err(ErrorKind::WouldBlock));
        other.write_all(&[byte]).unwrap();
    }
    assert_eq!(received(&mut stream), Ok(frame(60)));
    other.write_all(&[sent(14), sent(65553), sent(100)].concat()).unwrap();
    for length in [14, 65553, 100] {
        assert_eq!(received(&mut stream), Ok(frame(length)));
    }
    assert_eq!(received(&mut stream), Err(ErrorKind::WouldBlock));
}

#[test]
fn what_makes_no_sense_ends_it() {
    for bytes in [65554u32.to_be_bytes(), 13u32.to_be_bytes(), [0; 4], [0xff; 4]] {
        let (mut stream, mut other) = stream();
        other.write_all(&bytes).unwrap();
        other.write_all(&sent(60)).unwrap();
        assert_eq!(received(&mut stream), Err(ErrorKind::InvalidData));
        assert_eq!(received(&mut stream), Ok(Vec::new()), "and that is said once");
    }
    let (mut stream, mut other) = stream();
    other.write_all(&sent(60)[..30]).unwrap();
    drop(other);
    assert_eq!(received(&mut stream), Err(ErrorKind::UnexpectedEof));
    assert_eq!(received(&mut stream), Ok(Vec::new()));
    assert!(stream.send(&frame(60)).is_err() && stream.has_room());
}

#[test]
fn what_is_no_frame_is_not_sent() {
    let (mut stream, mut other) = stream();
    for length in [0, 13, 65536] {
        assert_eq!(stream.send(&frame(length)).unwrap_err().kind(), ErrorKind::InvalidInput, "{length}");
    }
    stream.send(&frame(14)).unwrap();
    // What goes on with the same socket finds it closed.
    drop(stream);
    let mut all = Vec::new();
    other.read_to_end(&mut all).unwrap();
    assert_eq!(all, sent(14));
}

#[test]
fn a_part_of_a_frame_that_cannot_be_followed_by_the_rest_ends_it() {
    let (mut stream, other) = stream();
    while stream.has_room() {
        stream.send(&frame(60_000)).unwrap();
    }
    assert!(stream.is_up());
    drop(other);
    assert!(stream.has_room() && !stream.is_up());
    assert_eq!(stream.send(&frame(60)).unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn what_was_not_used_is_as_good_as_before() {
    let (ours, mut other) = UnixStream::pair().unwrap();
    let kept = ours.try_clone().unwrap();
    drop(Stream::new(ours.into()).unwrap());
    let mut again = Stream::new(kept.into()).unwrap();
    other.write_all(&sent(14)).unwrap();
    assert_eq!(received(&mut again).unwrap(), frame(14));
    // What has come counts, too.
    drop(again);
    assert_eq!(other.read(&mut [0]).unwrap(), 0);
}

#[test]
fn other_sockets_are_refused() {
    let (datagrams, _other) = UnixDatagram::pair().unwrap();
    assert_eq!(Stream::new(datagrams.into()).unwrap_err().kind(), ErrorKind::InvalidInput);
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
    assert_eq!(Stream::new(listener.into()).unwrap_err().to_string(), "is a listening socket");
}

/// A device whose host end reads nothing yet, and has room for little.
fn slow() -> (Driver, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    sockopt::set_socket_send_buffer_size(&ours, 8 << 10).unwrap();
    let driver = Driver::running_on(SEND, Box::new(net(Stream::new(ours.into()).unwrap())), 0);
    for head in 0..QUEUE_SIZE {
        let place = BUFFERS + 0x4000 * u64::from(head);
        driver.memory.write_slice(&frame(length(head)), GuestAddress(place)).unwrap();
        driver.chain(head, &[(place, (HEADER + length(head)) as u32, false)]);
    }
    (driver, theirs)
}

fn length(head: u16) -> usize {
    3000 + usize::from(head)
}

/// Reads the frames of [`slow`].
fn read_all(other: &mut UnixStream) {
    for head in 0..QUEUE_SIZE {
        let mut bytes = vec![0; 4 + length(head)];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, sent(length(head)));
    }
}

#[test]
fn frames_wait_until_there_is_room() {
    let (mut driver, mut other) = slow();
    (0..QUEUE_SIZE).for_each(|head| driver.offer(head));
    driver.kick();
    let first = driver.used_index();
    assert!((1..QUEUE_SIZE).contains(&first), "{first} are done at once");
    let reader = thread::spawn(move || read_all(&mut other));
    while driver.used_index() < QUEUE_SIZE {
        driver.kick();
        thread::yield_now();
    }
    // What the socket had no room for of the last one.
    while !reader.is_finished() {
        driver.kick();
        thread::yield_now();
    }
    reader.join().unwrap();
}

#[test]
fn a_thread_hears_that_there_is_room() {
    let (mut driver, mut other) = slow();
    (0..QUEUE_SIZE).for_each(|head| driver.offer(head));
    let _running = driver.start_worker();
    driver.set(0x50, SEND.into());
    thread::sleep(Duration::from_millis(50));
    assert!(driver.used_index() < QUEUE_SIZE, "all are done");
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    read_all(&mut other);
    let begin = Instant::now();
    while driver.used_index() < QUEUE_SIZE {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody has heard");
        thread::yield_now();
    }
}

#[test]
fn a_program_that_goes_away_costs_frames_and_nothing_else() {
    let (stream, other) = stream();
    let net = net(stream);
    let counters = net.counters();
    let mut driver = Driver::running_on(SEND, Box::new(net), 0);
    drop(other);
    for _ in 0..3 {
        assert_eq!(driver.request(&[(BUFFERS, 100, false)]), 0);
    }
    assert!(!driver.needs_reset());
    assert_eq!((counters.values()["errors"], counters.values()["tx_frames"]), (3, 0));
}

proptest! {
    /// In whatever pieces frames come, they are the same; and whatever else comes ends the connection or waits for more.
    #[test]
    fn pieces_are_put_together(
        lengths in prop::collection::vec(14usize..3000, 0..8),
        garbage in prop::collection::vec(any::<u8>(), 0..20),
        cuts in prop::collection::vec(1usize..4000, 1..8),
    ) {
        let (mut stream, mut other) = stream();
        let mut bytes: Vec<u8> = lengths.iter().flat_map(|length| sent(*length)).collect();
        bytes.extend(garbage);
        let mut got = Vec::new();
        for cut in cuts.into_iter().cycle() {
            let piece: Vec<u8> = bytes.drain(..cut.min(bytes.len())).collect();
            other.write_all(&piece).unwrap();
            while let Ok(frame) = received(&mut stream) {
                if frame.is_empty() {
                    break;
                }
                got.push(frame);
            }
            if bytes.is_empty() {
                break;
            }
        }
        let expected: Vec<_> = lengths.iter().map(|length| frame(*length)).collect();
        prop_assert_eq!(got.get(..expected.len()), Some(expected.as_slice()));
    }
}

#[test]
fn a_guest_is_told_that_its_network_is_gone() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut driver = Driver::running_on(RECEIVE, Box::new(net(Stream::new(ours.into()).unwrap())), 0);
    let status = |driver: &mut Driver| {
        let mut status = [0; 2];
        BusDevice::read(&mut driver.transport, 0x106, &mut status);
        u16::from_le_bytes(status)
    };
    driver.chain(0, &[(BUFFERS, 1000, true)]);
    driver.offer(0);
    theirs.write_all(&sent(60)).unwrap();
    driver.kick();
    assert_eq!((driver.used_index(), status(&mut driver)), (1, 1));
    // ConfigGeneration and InterruptStatus.
    assert_eq!([0xfc, 0x60].map(|register| driver.get(register)), [0, 1], "that is no change");
    drop(theirs);
    driver.kick();
    assert_eq!((status(&mut driver), driver.get(0xfc), driver.get(0x60)), (0, 1, 3));
    driver.set(0x64, 3);
    driver.kick();
    assert_eq!([0xfc, 0x60].map(|register| driver.get(register)), [1, 0], "it is said once");
    driver.start(0);
    assert_eq!(status(&mut driver), 0, "nobody comes back");
}
