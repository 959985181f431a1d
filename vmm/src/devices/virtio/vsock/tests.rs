// SPDX-License-Identifier: Apache-2.0
//! Connections, with a guest that is played here and programs of this host that are real.

#![expect(clippy::cast_possible_truncation, reason = "lengths of tests are small")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Instant;

use proptest::prelude::*;
use tempfile::TempDir;
use vm_memory::{Bytes, GuestAddress};

use super::connection::ROOM;
use super::hub::{CALLERS_MAX, CONNECTIONS_MAX, Hub, RETRY};
use super::packet::{Credit, HOST_CID, Header, Op, Ports, STREAM};
use super::{BothWays, EVENT, HEARS, RECEIVE, Ready, Request, SEND, TOLD, VirtioDevice, Vsock};
use crate::devices::virtio::request::Segment;
use crate::listener::{self, Bound};
use crate::state::LaneState;

const CID: u64 = 3;
const MUCH: Credit = Credit { room: 1 << 20, passed: 0 };

/// What a guest sees of a packet: what for, between whom, with which flags, and its bytes.
type Seen = (Op, Ports, u32, Vec<u8>);

struct World {
    hub: Hub,
    _bound: Bound,
    directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm");
        let (bound, listener) = listener::bind(path.clone()).unwrap();
        Self { hub: Hub::new(CID, listener, path).unwrap(), _bound: bound, directory }
    }

    fn path(&self, suffix: &str) -> PathBuf {
        self.directory.path().join(format!("vm{suffix}"))
    }

    /// A program of the host that takes what comes for `port`.
    fn program(&self, port: u32) -> UnixListener {
        UnixListener::bind(self.path(&format!("_{port}"))).unwrap()
    }

    /// A program of the host that has said `line`.
    fn caller(&self, line: &str) -> UnixStream {
        let mut caller = UnixStream::connect(self.path("")).unwrap();
        caller.write_all(line.as_bytes()).unwrap();
        caller
    }

    /// The guest sends a packet.
    fn send(&mut self, ports: Ports, op: Op, flags: u32, credit: Credit, data: &[u8]) {
        let header = from_guest(ports, op, flags, credit, data);
        assert!(self.hub.take(&header, data));
    }

    /// All that there is for the guest now, in buffers of `room` bytes.
    fn receive_in(&mut self, room: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        while self.hub.has_packet() {
            let Some((header, data)) = self.hub.packet(room) else { continue };
            assert_eq!((header.source, header.destination, header.kind), (HOST_CID, CID, STREAM));
            assert_eq!((header.length as usize, data.len() <= room), (data.len(), true));
            let ports = Ports { host: header.source_port, guest: header.destination_port };
            seen.push((header.op.unwrap(), ports, header.flags, data.to_vec()));
        }
        seen
    }

    fn receive(&mut self) -> Vec<Seen> {
        self.receive_in(4096 - 44)
    }

    /// A connection that the host has wanted: the caller's end, and the ports.
    fn called(&mut self) -> (UnixStream, Ports) {
        let mut caller = self.caller("CONNECT 52\n");
        let seen = self.receive();
        let &[(Op::Request, ports, 0, _)] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!(ports.guest, 52);
        self.send(ports, Op::Response, 0, MUCH, &[]);
        let answer = format!("OK {}\n", ports.host);
        assert_eq!(read(&mut caller, answer.len()), answer.as_bytes());
        (caller, ports)
    }

    /// A connection that the guest has wanted: the program's end, and the ports.
    fn calling(&mut self) -> (UnixStream, Ports) {
        let program = self.program(7);
        let ports = Ports { host: 7, guest: 1000 };
        self.send(ports, Op::Request, 0, MUCH, &[]);
        assert_eq!(self.receive(), [(Op::Response, ports, 0, Vec::new())]);
        (program.accept().unwrap().0, ports)
    }
}

/// The header of what the guest sends.
fn from_guest(ports: Ports, op: Op, flags: u32, credit: Credit, data: &[u8]) -> Header {
    Header {
        source: CID,
        destination: HOST_CID,
        source_port: ports.guest,
        destination_port: ports.host,
        length: data.len() as u32,
        kind: STREAM,
        op: Some(op),
        flags,
        credit,
    }
}

/// A device, the socket that programs of the host connect to, and what is to be kept meanwhile.
fn device() -> (Vsock, PathBuf, (Bound, TempDir)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vm");
    let (bound, listener) = listener::bind(path.clone()).unwrap();
    let vsock = Vsock::new(CID as u32, listener, path.clone(), BothWays::default()).unwrap();
    (vsock, path, (bound, directory))
}

fn read(stream: &mut UnixStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

/// The bytes of packets that have nothing else.
fn data(seen: Vec<Seen>) -> Vec<u8> {
    seen.into_iter().flat_map(|(op, _, _, data)| if op == Op::Data { data } else { panic!("{op:?}") }).collect()
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn the_documentation_has_these_numbers() {
    let text = include_str!("../../../../../docs/vsock.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let all = CONNECTIONS_MAX * ROOM as usize;
    for words in [
        format!("at most {CONNECTIONS_MAX} connections at a time"),
        format!("{} KiB for each connection", ROOM >> 10),
        format!("up to {} MiB of flatboot's memory", all >> 20),
    ] {
        assert!(text.contains(&words), "{words}");
    }
}

/// A guest that knows connections from before it was saved has to have heard that they are gone.
#[test]
fn who_connects_waits_until_the_guest_has_heard_of_the_reset() {
    let (mut vsock, path, _kept) = device();
    let mut caller = UnixStream::connect(path).unwrap();
    caller.write_all(b"CONNECT 52\n").unwrap();
    vsock.restore(LaneState::Nothing);
    assert!(matches!(vsock.ready(RECEIVE), Ready::In(_)));
    assert_eq!((vsock.ready(EVENT), vsock.ready(SEND)), (Ready::Now, Ready::Now), "that is not for the guest");
    let memory = crate::memory::GuestMemory::new();
    vsock.handle(EVENT, &memory, &Request::default());
    assert_eq!(vsock.ready(EVENT), Ready::WhenWoken);
    let Ready::In(wait) = vsock.ready(RECEIVE) else { panic!("it has had no time to hear") };
    assert!(wait <= HEARS);
    std::thread::sleep(wait);
    // It did not run.
    vsock.resume();
    let Ready::In(wait) = vsock.ready(RECEIVE) else { panic!("it has had no time to hear") };
    std::thread::sleep(wait);
    assert_eq!(vsock.ready(RECEIVE), Ready::Now);
    vsock.resume();
    assert_eq!(vsock.ready(RECEIVE), Ready::Now, "it has heard");
    // One that gives no buffers for events.
    vsock.restore(LaneState::Nothing);
    assert!(vsock.settling(Instant::now()).is_some());
    assert_eq!(vsock.settling(Instant::now() + TOLD), None);
    assert!(vsock.resets);
}

#[test]
fn who_comes_when_no_descriptor_is_left_is_taken_later() {
    let (mut vsock, path, _kept) = device();
    vsock.hub.wait_for_room(Instant::now());
    let mut caller = UnixStream::connect(path).unwrap();
    caller.write_all(b"CONNECT 52\n").unwrap();
    assert_eq!((vsock.ready(RECEIVE), vsock.retry()), (Ready::WhenWoken, Some(RETRY)));
    std::thread::sleep(RETRY);
    assert_eq!((vsock.ready(RECEIVE), vsock.retry()), (Ready::Now, None));
}

#[test]
fn ports_are_others_than_before() {
    let mut world = World::new();
    let (_caller, first) = world.called();
    world.hub.begin_elsewhere();
    let (_other, second) = world.called();
    assert!(second.host > first.host + 1, "{first:?}, {second:?}");
}

#[test]
fn the_host_connects() {
    let mut world = World::new();
    let (mut caller, ports) = world.called();
    caller.write_all(&bytes(10_000)).unwrap();
    assert_eq!(data(world.receive()), bytes(10_000));
    world.send(ports, Op::Data, 0, MUCH, b"hello");
    assert_eq!(read(&mut caller, 5), b"hello");
}

#[test]
fn a_line_comes_in_pieces_and_what_follows_is_the_guests() {
    let mut world = World::new();
    let mut caller = world.caller("CONN");
    assert_eq!(world.receive(), []);
    caller.write_all(b"ECT 52\nhello").unwrap();
    let seen = world.receive();
    let [(Op::Request, ports, _, _)] = seen.as_slice() else { panic!("{seen:?}") };
    world.send(*ports, Op::Response, 0, MUCH, &[]);
    assert_eq!(data(world.receive()), b"hello");
}

#[test]
fn what_is_no_line_is_hung_up_on() {
    let mut world = World::new();
    for line in
        ["\n", "CONNECT \n", "CONNECT x\n", "CONNECT -1\n", "CONNECT 4294967296\n", "CONNECT 1 2\n", &"x".repeat(99)]
    {
        let mut caller = world.caller(line);
        assert_eq!(world.receive(), [], "{line}");
        // Bytes that nobody has read make it an error.
        assert!(matches!(caller.read(&mut [0]), Ok(0) | Err(_)), "{line}");
    }
}

#[test]
fn who_keeps_silent_goes_for_others() {
    let mut world = World::new();
    let mut silent: Vec<_> = (0..CALLERS_MAX).map(|_| world.caller("")).collect();
    let heard = |world: &mut World| (0..CALLERS_MAX).flat_map(|_| world.receive()).collect::<Vec<_>>();
    assert_eq!(heard(&mut world), []);
    let _caller = world.caller("CONNECT 52\n");
    assert!(matches!(heard(&mut world).as_slice(), [(Op::Request, Ports { guest: 52, .. }, 0, _)]));
    for caller in &silent {
        caller.set_nonblocking(true).unwrap();
    }
    assert_eq!(silent[0].read(&mut [0]).unwrap(), 0, "it was the first");
    assert!(silent[1].read(&mut [0]).is_err(), "it still has its turn");
}

#[test]
fn what_a_program_refuses_needs_no_room() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    world.send(ports, Op::Data, 0, MUCH, &bytes(1000));
    program.write_all(b"too long").unwrap();
    drop(program);
    for _ in 0..2 {
        world.send(ports, Op::Data, 0, MUCH, &bytes(64 << 10));
    }
    let mut passed = 0;
    while world.hub.has_packet() {
        passed = world.hub.packet(4096).map_or(passed, |(header, _)| header.credit.passed);
    }
    assert_eq!(passed, 1000 + 2 * (64 << 10));
}

/// Whatever else the guest has been told meanwhile.
#[test]
fn who_asks_for_room_is_answered() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    program.write_all(b"data").unwrap();
    assert!(world.hub.has_packet());
    world.send(ports, Op::CreditRequest, 0, MUCH, &[]);
    let ops: Vec<_> = world.receive().into_iter().map(|(op, ..)| op).collect();
    assert_eq!(ops, [Op::Data, Op::CreditUpdate]);
    assert_eq!(world.receive(), [], "once");
}

/// Not only by 64 KiB, as Linux does.
#[test]
fn a_packet_may_be_all_that_there_is_room_for() {
    let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
    let (mut vsock, path, _kept) = device();
    let program = UnixListener::bind(path.with_file_name("vm_7")).unwrap();
    let mut send = |op, data: &[u8]| {
        let header = from_guest(Ports { host: 7, guest: 1000 }, op, 0, MUCH, data);
        let packet = [&header.bytes()[..], data].concat();
        memory.write_slice(&packet, GuestAddress(0)).unwrap();
        let segment = Segment { address: GuestAddress(0), length: packet.len() as u32 };
        let request = Request { readable: vec![segment], writable: Vec::new(), complete: true, ordered: true };
        vsock.send(&memory, &request)
    };
    send(Op::Request, &[]).unwrap();
    let mut end = program.accept().unwrap().0;
    send(Op::Data, &bytes(ROOM as usize)).unwrap();
    assert_eq!(read(&mut end, 65_537), bytes(65_537));
    assert!(send(Op::Data, &bytes(ROOM as usize + 1)).is_err());
}

#[test]
fn a_line_is_read_as_others_do() {
    for line in ["connect 52\n", "CONNECT 52\r\n", "CONNECT  52 \n"] {
        let mut world = World::new();
        let _caller = world.caller(line);
        assert!(matches!(world.receive().as_slice(), [(Op::Request, Ports { guest: 52, .. }, 0, _)]), "{line}");
    }
}

#[test]
fn a_server_that_hangs_up_early_is_heard() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    world.send(ports, Op::Data, 0, MUCH, &bytes(1000));
    program.write_all(b"too long").unwrap();
    drop(program);
    for _ in 0..20 {
        world.send(ports, Op::Data, 0, MUCH, &bytes(64 << 10));
    }
    let seen: Vec<_> = world.receive().into_iter().filter(|(op, ..)| *op != Op::CreditUpdate).collect();
    assert_eq!(seen, [(Op::Data, ports, 0, b"too long".to_vec()), (Op::Shutdown, ports, 3, Vec::new())]);
}

#[test]
fn a_program_that_goes_behind_its_last_word_is_noticed() {
    let mut world = World::new();
    let (program, ports) = world.calling();
    program.shutdown(Shutdown::Write).unwrap();
    assert_eq!(world.receive(), [(Op::Shutdown, ports, 2, Vec::new())]);
    drop(program);
    assert_eq!(world.receive(), [(Op::Shutdown, ports, 3, Vec::new())]);
    assert_eq!(world.receive(), [], "and that is said once");
    // The guest may use the ports again at once.
    std::fs::remove_file(world.path("_7")).unwrap();
    let _again = world.calling();
    let caller = world.caller("CONNECT 52\n");
    let asked = world.receive()[0].1;
    drop(caller);
    assert_eq!(world.receive(), [(Op::Reset, asked, 0, Vec::new())], "nobody waits for the answer");
}

#[test]
fn a_guest_that_takes_nothing_costs_no_memory() {
    let mut world = World::new();
    let program = world.program(9);
    program.set_nonblocking(true).unwrap();
    // A refusal that stays keeps what comes behind it from being looked at.
    world.send(Ports { host: 1, guest: 1 }, Op::Data, 0, MUCH, &[]);
    for guest in 0..2000 {
        let ports = Ports { host: 9, guest };
        world.send(ports, Op::Request, 0, MUCH, &[]);
        world.send(ports, Op::Reset, 0, MUCH, &[]);
        drop(program.accept());
    }
    assert!(world.hub.backlog() <= CONNECTIONS_MAX, "{}", world.hub.backlog());
}

#[test]
fn a_guest_that_refuses_is_an_end() {
    let mut world = World::new();
    let mut caller = world.caller("CONNECT 52\n");
    let ports = world.receive()[0].1;
    world.send(ports, Op::Reset, 0, MUCH, &[]);
    assert_eq!(caller.read(&mut [0]).unwrap(), 0);
    assert_eq!(world.receive(), [], "a refusal is not refused");
}

#[test]
fn the_guest_connects_where_somebody_listens() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    world.send(ports, Op::Data, 0, MUCH, b"hello");
    assert_eq!(read(&mut program, 5), b"hello");
    program.write_all(b"and you").unwrap();
    assert_eq!(data(world.receive()), b"and you");
    let nobody = Ports { host: 8, guest: 1000 };
    world.send(nobody, Op::Request, 0, MUCH, &[]);
    assert_eq!(world.receive(), [(Op::Reset, nobody, 0, Vec::new())]);
}

#[test]
fn a_guest_gets_no_more_than_it_has_room_for() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    world.send(ports, Op::CreditUpdate, 0, Credit { room: 10, passed: 0 }, &[]);
    program.write_all(&bytes(30)).unwrap();
    assert_eq!(world.receive(), [(Op::Data, ports, 0, bytes(10)), (Op::CreditRequest, ports, 0, Vec::new())],);
    world.send(ports, Op::CreditUpdate, 0, Credit { room: 10, passed: 5 }, &[]);
    let seen = world.receive();
    assert_eq!(seen[0], (Op::Data, ports, 0, bytes(30)[10..15].to_vec()));
    // One that lies gets nothing, and no harm is done.
    world.send(ports, Op::CreditUpdate, 0, Credit { room: 10, passed: 500 }, &[]);
    assert_eq!(world.receive(), []);
    world.send(ports, Op::CreditUpdate, 0, Credit { room: 100, passed: 15 }, &[]);
    assert_eq!(data(world.receive()), bytes(30)[15..]);
}

#[test]
fn a_program_that_does_not_read_has_room_for_what_was_promised() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    let all = bytes(4 << 20);
    let mut sent = 0;
    // Until the room that is left, as the guest is told it, would be exceeded.
    let mut told = Credit { room: ROOM, passed: 0 };
    let mut read_back: Vec<u8> = Vec::new();
    while sent < all.len() {
        while sent < all.len() && told.room - (sent as u32).wrapping_sub(told.passed) >= 32 << 10 {
            world.send(ports, Op::Data, 0, MUCH, &all[sent..sent + (32 << 10)]);
            sent += 32 << 10;
        }
        program.set_nonblocking(true).unwrap();
        let mut part = vec![0; 100_000];
        if let Ok(length) = program.read(&mut part) {
            read_back.extend(&part[..length]);
        }
        world.hub.flush();
        while world.hub.has_packet() {
            let Some((header, _)) = world.hub.packet(4096) else { continue };
            assert_eq!(header.op, Some(Op::CreditUpdate));
            told = header.credit;
        }
    }
    program.set_nonblocking(false).unwrap();
    while read_back.len() < all.len() {
        world.hub.flush();
        let mut part = vec![0; 100_000];
        let length = program.read(&mut part).unwrap();
        read_back.extend(&part[..length]);
    }
    assert!(read_back == all);
}

#[test]
fn a_guest_that_sends_more_than_there_is_room_for_loses_the_connection() {
    let mut world = World::new();
    let (_program, ports) = world.calling();
    let mut seen = Vec::new();
    for _ in 0..64 {
        world.send(ports, Op::Data, 0, MUCH, &bytes(64 << 10));
        seen = world.receive();
        if seen.iter().any(|(op, ..)| *op == Op::Reset) {
            break;
        }
    }
    assert_eq!(seen.last().map(|(op, ..)| *op), Some(Op::Reset));
    world.send(ports, Op::Data, 0, MUCH, &[1]);
    assert_eq!(world.receive(), [(Op::Reset, ports, 0, Vec::new())], "there is no such connection");
}

#[test]
fn each_direction_ends_for_itself() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    program.write_all(b"last").unwrap();
    program.shutdown(Shutdown::Write).unwrap();
    assert_eq!(world.receive(), [(Op::Data, ports, 0, b"last".to_vec()), (Op::Shutdown, ports, 2, Vec::new())]);
    world.send(ports, Op::Data, 0, MUCH, b"still here");
    assert_eq!(read(&mut program, 10), b"still here");
    world.send(ports, Op::Shutdown, 3, MUCH, &[]);
    assert_eq!(world.receive(), [(Op::Reset, ports, 0, Vec::new())]);
    assert_eq!(program.read(&mut [0]).unwrap(), 0);
    world.send(ports, Op::Data, 0, MUCH, &[1]);
    assert_eq!(world.receive(), [(Op::Reset, ports, 0, Vec::new())], "it is over");
}

#[test]
fn a_guest_that_only_sends_hears_that_its_program_is_gone() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    world.send(ports, Op::Shutdown, 1, MUCH, &[]);
    assert_eq!(world.receive(), []);
    world.send(ports, Op::Data, 0, MUCH, b"a line");
    assert_eq!(read(&mut program, 6), b"a line");
    assert!(program.write_all(b"unheard").is_err(), "nobody reads it");
    drop(program);
    assert_eq!(world.receive(), [(Op::Shutdown, ports, 3, Vec::new())]);
    world.send(ports, Op::Data, 0, MUCH, b"into nothing");
    assert_eq!(world.receive(), [(Op::Reset, ports, 0, Vec::new())]);
}

#[test]
fn the_guests_half_ends_first() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    world.send(ports, Op::Data, 0, MUCH, b"request");
    world.send(ports, Op::Shutdown, 2, MUCH, &[]);
    let mut request = String::new();
    program.read_to_string(&mut request).unwrap();
    assert_eq!(request, "request");
    program.write_all(b"answer").unwrap();
    drop(program);
    assert_eq!(world.receive(), [(Op::Data, ports, 0, b"answer".to_vec()), (Op::Shutdown, ports, 3, Vec::new())]);
    world.send(ports, Op::Reset, 0, MUCH, &[]);
    assert_eq!(world.receive(), []);
}

#[test]
fn what_a_guest_has_sent_before_it_goes_is_delivered() {
    let mut world = World::new();
    let (mut program, ports) = world.calling();
    let all = bytes(ROOM as usize);
    for part in all.chunks(32 << 10) {
        world.send(ports, Op::Data, 0, MUCH, part);
    }
    world.send(ports, Op::Reset, 0, MUCH, &[]);
    let mut got: Vec<u8> = Vec::new();
    while got.len() < all.len() {
        let mut part = vec![0; 50_000];
        let length = program.read(&mut part).unwrap();
        assert!(length > 0, "only {} bytes came", got.len());
        got.extend(&part[..length]);
        world.hub.flush();
    }
    assert!(got == all);
    assert_eq!(program.read(&mut [0]).unwrap(), 0);
    assert_eq!(world.receive(), []);
}

#[test]
fn packets_that_nobody_knows_are_refused_and_not_all_are_answered() {
    let mut world = World::new();
    for guest in 0..1000 {
        world.send(Ports { host: 1, guest }, Op::Data, 0, MUCH, &[]);
    }
    assert_eq!(world.receive().len(), 256);
    let (_program, ports) = world.calling();
    for op in [Op::Request, Op::Response] {
        world.send(ports, op, 0, MUCH, &[]);
        assert_eq!(world.receive().last().map(|(op, ..)| *op), Some(Op::Reset), "{op:?}");
        world.send(ports, Op::Reset, 0, MUCH, &[]);
        std::fs::remove_file(world.path("_7")).unwrap();
        let _again = world.calling();
    }
}

#[test]
fn there_are_only_so_many() {
    let mut world = World::new();
    let program = world.program(7);
    program.set_nonblocking(true).unwrap();
    let mut ends = Vec::new();
    for guest in 0..=CONNECTIONS_MAX as u32 {
        world.send(Ports { host: 7, guest }, Op::Request, 0, MUCH, &[]);
        ends.extend(program.accept());
    }
    let seen = world.receive();
    let responses = seen.iter().filter(|(op, ..)| *op == Op::Response).count();
    assert_eq!((responses, seen.len()), (CONNECTIONS_MAX, CONNECTIONS_MAX + 1));
    let mut caller = world.caller("CONNECT 1\n");
    assert_eq!(world.receive(), []);
    assert!(matches!(caller.read(&mut [0]), Ok(0) | Err(_)));
    world.hub.reset();
    let mut early: Vec<_> = (0..2).map(|_| world.caller("CONNECT")).collect();
    assert_eq!(world.receive(), []);
    for guest in 1..CONNECTIONS_MAX as u32 {
        world.send(Ports { host: 7, guest }, Op::Request, 0, MUCH, &[]);
        ends.extend(program.accept());
    }
    assert_eq!(world.receive().len(), CONNECTIONS_MAX - 1);
    for caller in &mut early {
        caller.write_all(b" 1\n").unwrap();
    }
    assert_eq!(world.receive().len(), 1, "one of those who came before there were so many");
    world.hub.reset();
    drop(ends);
    let _connected = world.called();
}

proptest! {
    /// Whatever packets come, in whatever order, nothing breaks, and what there is for the guest comes to an end.
    #[test]
    fn no_packets_break_it(packets in prop::collection::vec((0u8..9, 0u32..3, 0u32..3, 0u32..4, any::<Option<u32>>(), 0usize..70_000), 0..60)) {
        let mut world = World::new();
        let _programs = (world.program(0), world.program(1));
        let mut callers = Vec::new();
        for (op, host, guest, flags, passed, length) in packets {
            let op = [
                Op::Request, Op::Response, Op::Reset, Op::Shutdown, Op::Data, Op::CreditUpdate, Op::CreditRequest,
            ].get(usize::from(op)).copied();
            let Some(op) = op else {
                callers.push(world.caller("CONNECT 1\nhello"));
                continue;
            };
            // Of connections that the host has made, too.
            let host = if host == 2 { 1 << 30 } else { host };
            let credit = passed.map_or(MUCH, |passed| Credit { room: passed / 2, passed });
            world.send(Ports { host, guest }, op, flags, credit, &vec![op as u8; length]);
            if guest == 0 {
                prop_assert!(world.receive().len() < 1000);
            }
            world.hub.flush();
        }
        prop_assert!(world.receive().len() < 1000);
    }

    /// However it is cut, what one side sends is what the other one gets.
    #[test]
    fn bytes_arrive_in_order(
        down in prop::collection::vec(1usize..20_000, 1..8),
        up in prop::collection::vec(1usize..20_000, 1..8),
        room in 1usize..9000,
    ) {
        let mut world = World::new();
        let (mut caller, ports) = world.called();
        let (all_down, all_up) = (bytes(down.iter().sum()), bytes(up.iter().sum()));
        let (mut got_down, mut got_up): (Vec<u8>, Vec<u8>) = Default::default();
        let (mut at_down, mut at_up) = (0, 0);
        for index in 0..down.len().max(up.len()) {
            if let Some(length) = down.get(index) {
                caller.write_all(&all_down[at_down..at_down + length]).unwrap();
                at_down += length;
            }
            if let Some(length) = up.get(index) {
                world.send(ports, Op::Data, 0, Credit { room: 1 << 20, passed: got_down.len() as u32 }, &all_up[at_up..at_up + length]);
                at_up += length;
                world.hub.flush();
                got_up.extend(read(&mut caller, *length));
            }
            for (op, _, _, data) in world.receive_in(room) {
                prop_assert!(op == Op::Data || op == Op::CreditUpdate, "{op:?}");
                got_down.extend(data);
            }
        }
        prop_assert!(got_down == all_down && got_up == all_up);
    }
}
