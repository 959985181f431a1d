// SPDX-License-Identifier: Apache-2.0
//! A console, and who comes and goes at its other end.

use std::fs::{self, File};
use std::io::{self, PipeWriter, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use vm_memory::{Bytes, GuestAddress};

use super::driver::{BUFFERS, Driver};
use crate::devices::virtio::Console;
use crate::devices::virtio::console::pty::Pty;
use crate::devices::virtio::console::socket::Socket;
use crate::devices::virtio::console::stream::Stream;
use crate::observe::devices::{DeviceCounters, SerialCounters};

const RECEIVE: u16 = 0;
const SEND: u16 = 1;

/// A console whose clients come to a socket, a driver that uses queue `queue`, and what it counts by.
fn at_socket(queue: u16) -> (Driver, PathBuf, Arc<SerialCounters>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("console");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let console = Console::new(Box::new(Socket::new(listener).unwrap()));
    let counters = console.counters();
    (Driver::running_on(queue, Box::new(console), 0), path, counters, directory)
}

fn write(driver: &mut Driver, text: &[u8]) {
    driver.memory.write_slice(text, GuestAddress(BUFFERS)).unwrap();
    driver.chain(0, &[(BUFFERS, u32::try_from(text.len()).unwrap(), false)]);
    driver.offer(0);
    driver.kick();
}

fn counted(counters: &SerialCounters) -> [u64; 2] {
    let values = counters.values();
    ["write_bytes", "dropped_bytes"].map(|name| values[name])
}

/// A console that writes at most `most` bytes to `output`, and gets what comes through a pipe.
fn at_stream(output: File, most: u64, queue: u16) -> (Driver, PipeWriter, Arc<SerialCounters>) {
    let (typed, keys) = io::pipe().unwrap();
    let console = Console::new(Box::new(Stream::new(output, most, Some(typed)).unwrap()));
    let counters = console.counters();
    (Driver::running_on(queue, Box::new(console), 0), keys, counters)
}

fn read(mut from: impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_nobody_wants_is_dropped_and_holds_up_nobody() {
    let (mut driver, path, counters, _directory) = at_socket(SEND);
    for number in 1..=3 {
        write(&mut driver, b"nobody\n");
        assert_eq!((driver.used_index(), counted(&counters)), (number, [0, 7 * u64::from(number)]));
    }
    let client = UnixStream::connect(&path).unwrap();
    write(&mut driver, b"somebody\n");
    assert_eq!((read(&client, 9), counted(&counters)), (b"somebody\n".to_vec(), [9, 21]));
    drop(client);
    write(&mut driver, b"gone\n");
    assert_eq!(counted(&counters), [9, 26]);
    let next = UnixStream::connect(&path).unwrap();
    write(&mut driver, b"next\n");
    assert_eq!(read(&next, 5), b"next\n");
}

#[test]
fn one_is_there_at_a_time() {
    let (mut driver, path, _, _directory) = at_socket(SEND);
    let first = UnixStream::connect(&path).unwrap();
    write(&mut driver, b"a");
    let second = UnixStream::connect(&path).unwrap();
    write(&mut driver, b"b");
    assert_eq!(read(&first, 2), b"ab");
    drop(first);
    write(&mut driver, b"c");
    write(&mut driver, b"d");
    // The one to whom it was written had gone, or the next one had come already.
    let mut came = [0; 2];
    let count = (&second).read(&mut came).unwrap();
    assert!(came[..count].ends_with(b"d"), "{came:?}");
}

#[test]
fn whoever_has_said_it_all_still_reads_and_whoever_leaves_is_not_waited_for() {
    let (mut driver, path, counters, _directory) = at_socket(SEND);
    let client = UnixStream::connect(&path).unwrap();
    write(&mut driver, b"a");
    client.shutdown(Shutdown::Write).unwrap();
    // The other queue finds that there is nothing to read.
    driver.set(0x50, RECEIVE.into());
    let _worker = driver.start_worker();
    thread::sleep(Duration::from_millis(20));
    let piece = vec![b'x'; 32 << 10];
    driver.memory.write_slice(&piece, GuestAddress(BUFFERS)).unwrap();
    let offer = |driver: &mut Driver| {
        driver.chain(0, &[(BUFFERS, 32 << 10, false)]);
        driver.offer(0);
        driver.set(0x50, SEND.into());
    };
    offer(&mut driver);
    let until = |driver: &Driver, index: u16| {
        let begun = Instant::now();
        while driver.used_index() < index && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(driver.used_index() >= index, "{} of {index}", driver.used_index());
    };
    until(&driver, 2);
    assert_eq!(read(&client, 1 + (32 << 10)).last(), Some(&b'x'));
    // Until nothing more goes; then it leaves.
    let mut offered = 2;
    while offered < 40 {
        offer(&mut driver);
        offered += 1;
        thread::sleep(Duration::from_millis(2));
    }
    assert!(driver.used_index() < 40, "nobody reads");
    drop(client);
    until(&driver, 40);
    assert!(counted(&counters)[1] > 0);
}

#[test]
fn whoever_is_there_and_does_not_read_is_waited_for() {
    let (mut driver, path, counters, _directory) = at_socket(SEND);
    let mut client = UnixStream::connect(&path).unwrap();
    let piece = vec![b'x'; 32 << 10];
    let mut pieces = 0;
    // Until one is taken off the queue and stays with the device, and the next one on the queue.
    while usize::from(driver.used_index()) == pieces {
        pieces += 1;
        assert!(pieces < 100, "it is not waited for");
        write(&mut driver, &piece);
    }
    assert_eq!(counted(&counters)[1], 0);
    let _worker = driver.start_worker();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let all = read(&mut client, pieces * piece.len());
    assert!(all.iter().all(|byte| *byte == b'x'));
    let begun = Instant::now();
    while usize::from(driver.used_index()) < pieces && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(usize::from(driver.used_index()), pieces);
}

#[test]
fn what_is_typed_arrives_in_as_many_buffers_as_it_takes() {
    let (mut driver, path, _, _directory) = at_socket(RECEIVE);
    let mut client = UnixStream::connect(&path).unwrap();
    for (head, address) in [(0, BUFFERS), (1, BUFFERS + 0x100), (2, BUFFERS + 0x200)] {
        driver.chain(head, &[(address, 4, true)]);
        driver.offer(head);
    }
    driver.kick();
    assert_eq!(driver.used_index(), 0, "nothing was typed");
    let _worker = driver.start_worker();
    let wait = |driver: &Driver, index: u16| {
        let begun = Instant::now();
        while driver.used_index() < index && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(driver.used_index(), index);
    };
    client.write_all(b"abcdef").unwrap();
    wait(&driver, 2);
    assert_eq!([driver.used(0), driver.used(1)], [(0, 4), (1, 2)]);
    assert_eq!([driver.bytes(BUFFERS, 4), driver.bytes(BUFFERS + 0x100, 2)], [b"abcd".to_vec(), b"ef".to_vec()]);
    // Another one comes, when the first has gone.
    drop(client);
    UnixStream::connect(&path).unwrap().write_all(b"g").unwrap();
    wait(&driver, 3);
    assert_eq!((driver.used(2), driver.bytes(BUFFERS + 0x200, 1)), ((2, 1), b"g".to_vec()));
}

#[test]
fn what_makes_no_sense_is_nothing() {
    let (mut driver, path, counters, _directory) = at_socket(SEND);
    let client = UnixStream::connect(&path).unwrap();
    // Nowhere; and much more than anybody writes at once, which is cut off.
    driver.request(&[(u64::MAX - 100, 50, false)]);
    driver.request(&[(BUFFERS, 65 << 10, false)]);
    write(&mut driver, b"end");
    let all = read(&client, (64 << 10) + 3);
    assert!(all.ends_with(b"end"));
    assert_eq!(counted(&counters), [all.len() as u64, 1 << 10]);
}

/// The program's side of `pty`.
fn other_side(path: &std::path::Path) -> File {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK;
    File::from(open(path, flags, Mode::empty()).unwrap())
}

/// What comes out within a while.
fn comes(mut terminal: &File, length: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < length {
        let timeout = Timespec { tv_sec: 10, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(terminal, PollFlags::IN)], Some(&timeout)).unwrap(), 1, "{all:?}");
        let mut bytes = [0; 4096];
        let count = terminal.read(&mut bytes).unwrap();
        all.extend_from_slice(&bytes[..count]);
    }
    all
}

#[test]
fn a_pseudo_terminal_passes_everything_as_it_is() {
    let pty = Pty::new().unwrap();
    let path = pty.path().to_owned();
    let console = Console::new(Box::new(pty));
    let counters = console.counters();
    let mut driver = Driver::running_on(SEND, Box::new(console), 0);
    for _ in 0..100 {
        // More than a terminal holds.
        write(&mut driver, &[b'n'; 512]);
    }
    assert_eq!(counted(&counters), [0, 51200], "nobody is there");
    let terminal = other_side(&path);
    let text = b"a\r\nb\n\x03\x04\x1b[0m\xff";
    write(&mut driver, text);
    assert_eq!(comes(&terminal, text.len()), text);
    drop(terminal);
    write(&mut driver, b"gone");
    assert_eq!(counted(&counters), [text.len() as u64, 51204]);

    let pty = Pty::new().unwrap();
    let path = pty.path().to_owned();
    let mut driver = Driver::running_on(RECEIVE, Box::new(Console::new(Box::new(pty))), 0);
    driver.chain(0, &[(BUFFERS, 0x100, true)]);
    driver.offer(0);
    let _worker = driver.start_worker();
    // One who goes, and one who comes.
    drop(other_side(&path));
    let mut terminal = other_side(&path);
    terminal.write_all(text).unwrap();
    let begun = Instant::now();
    while driver.used_index() == 0 && begun.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
    }
    let (_, length) = driver.used(0);
    assert_eq!(driver.bytes(BUFFERS, length as usize), text[..length as usize]);
}

#[test]
fn a_file_has_what_was_written_up_to_its_limit() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (mut driver, _keys, counters) = at_stream(file.reopen().unwrap(), 10, SEND);
    write(&mut driver, b"first\n");
    write(&mut driver, b"second\n");
    write(&mut driver, b"third\n");
    assert_eq!(driver.used_index(), 3, "it holds up the guest");
    assert_eq!(fs::read(file.path()).unwrap(), b"first\nseco");
    assert_eq!(counted(&counters), [10, 9]);
}

#[test]
fn a_pipe_that_nobody_reads_is_waited_for_without_a_write_that_waits() {
    let (mut reader, writer) = io::pipe().unwrap();
    let (mut driver, _keys, counters) = at_stream(File::from(OwnedFd::from(writer)), u64::MAX, SEND);
    let piece = vec![b'x'; 48 << 10];
    write(&mut driver, &piece);
    assert_eq!(driver.used_index(), 1);
    write(&mut driver, &piece);
    // The pipe has at most 64 KiB; what is left waits in the device, and the next one on the queue.
    write(&mut driver, b"next");
    assert_eq!(driver.used_index(), 2);
    let mut came = vec![0; 128 << 10];
    let mut count = 0;
    while count < (96 << 10) + 4 {
        count += reader.read(&mut came[count..]).unwrap();
        driver.kick();
    }
    assert_eq!((driver.used_index(), counted(&counters)), (3, [(96 << 10) + 4, 0]));
    assert!(came[..count].ends_with(b"xnext"));
    // And one that has gone is nobody.
    drop(reader);
    write(&mut driver, b"gone");
    assert_eq!((driver.used_index(), counted(&counters)[1]), (4, 4));
}

#[test]
fn what_is_typed_comes_and_then_nothing_more() {
    let (mut driver, mut keys, _) = at_stream(tempfile::tempfile().unwrap(), u64::MAX, RECEIVE);
    driver.chain(0, &[(BUFFERS, 64, true)]);
    driver.offer(0);
    driver.kick();
    assert_eq!(driver.used_index(), 0);
    keys.write_all(b"typed").unwrap();
    driver.kick();
    assert_eq!(driver.used_index(), 1);
    let mut text = [0; 5];
    driver.memory.read_slice(&mut text, GuestAddress(BUFFERS)).unwrap();
    assert_eq!(&text, b"typed");
    drop(keys);
    driver.chain(0, &[(BUFFERS, 64, true)]);
    driver.offer(0);
    driver.kick();
    assert_eq!(driver.used_index(), 1);
}
