// SPDX-License-Identifier: Apache-2.0
//! Several pairs of queues of a network interface, and the control queue, by which a driver says how many it uses.

use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::driver::{Driver, QUEUE_SIZE};
use crate::devices::bus::{BusDevice, lock};
use crate::devices::virtio::Net;
use crate::devices::virtio::limit::{BothWays, Limiter, Rate};
use crate::devices::virtio::net::tap::Tap;
use crate::devices::virtio::net::{Interface, Link, Mac, Switch};
use crate::observe::devices::{DeviceCounters, TrafficCounters};

const PAIRS: u16 = 3;
/// Behind all pairs, and behind the one that a driver knows of which takes them for one.
const CONTROL: u16 = 2 * PAIRS;
const CONTROL_OF_ONE: u16 = 2;
const MQ: u64 = 1 << 22;
const OK: u8 = 0;
const ERR: u8 = 1;

/// Whether a pair is used, as the host was told, and whether the host lets it be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    used: bool,
    refuses: bool,
}

/// A link that hears whether it is used.
#[derive(Debug)]
struct End {
    tap: Tap,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug)]
struct Hears(Arc<Mutex<Told>>);

impl Switch for Hears {
    fn switch(&mut self, used: bool) -> io::Result<()> {
        let mut told = lock(&self.0);
        if used && told.refuses {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        told.used = used;
        Ok(())
    }
}

impl Link for End {
    fn is_up(&self) -> bool {
        self.tap.is_up()
    }

    fn switch(&mut self) -> Option<Box<dyn Switch>> {
        Some(Box::new(Hears(Arc::clone(&self.told))))
    }

    fn incoming(&self) -> RawFd {
        self.tap.incoming()
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tap.receive(buffer)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.tap.send(frame)
    }
}

/// A driver of an interface with several pairs, and the host.
struct Machine {
    driver: Driver,
    /// By pair, the host's end of its tap,
    hosts: Vec<UnixDatagram>,
    /// and for all but the first what the host was told.
    told: Vec<Arc<Mutex<Told>>>,
    counters: Arc<TrafficCounters>,
    /// By queue, how many requests were offered.
    offered: Vec<u16>,
}

/// Where what belongs to a queue begins: its tables, and its buffers half way behind.
fn base(queue: u16) -> u64 {
    0x4_0000 * (u64::from(queue) + 1)
}

fn buffer(queue: u16) -> u64 {
    base(queue) + 0x2_0000
}

impl Machine {
    fn new(limits: BothWays) -> Self {
        let (mut links, mut hosts, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let (ours, tap) = UnixDatagram::pair().unwrap();
            for end in [&ours, &tap] {
                end.set_nonblocking(true).unwrap();
            }
            let end = Arc::new(Mutex::new(Told { used: true, refuses: false }));
            let tap = Tap::pretended(File::from(OwnedFd::from(tap))).unwrap();
            links.push(Box::new(End { tap, told: Arc::clone(&end) }) as Box<dyn Link>);
            hosts.push(ours);
            told.push(end);
        }
        let others = links.split_off(1);
        let interface = Interface { mac: Mac::of(0, 0), mtu: None, queue_size: QUEUE_SIZE };
        let net = Net::new(links.remove(0), others, "test".to_owned(), interface, limits);
        let counters = net.counters();
        let driver = Driver::new(Box::new(net));
        Self { driver, hosts, told: told.split_off(1), counters, offered: vec![0; usize::from(CONTROL) + 1] }
    }

    /// The same with a driver that is ready, but for `refused` features, on all of its queues.
    fn started(limits: BothWays, refused: u64) -> Self {
        let mut machine = Self::new(limits);
        machine.start(refused);
        machine
    }

    fn start(&mut self, refused: u64) {
        for status in [0, 1, 3] {
            self.driver.set(0x70, status);
        }
        let features = self.driver.offered() & !refused;
        self.driver.accept(features);
        self.driver.set(0x70, 11);
        for queue in 0..=CONTROL {
            self.driver.memory.write_slice(&vec![0; 0x1_0000], GuestAddress(base(queue))).unwrap();
            self.driver.select(queue);
            let start = base(queue);
            self.driver.describe_queue(QUEUE_SIZE.into(), [start, start + 0x4000, start + 0x8000]);
        }
        self.offered.fill(0);
        self.driver.set(0x70, 15);
        assert_eq!(self.driver.get(0x70), 15);
    }

    /// Offers a request of (address, length, device writes), and lets the device work.
    fn offer(&mut self, queue: u16, segments: &[(u64, u32, bool)]) {
        let memory = &self.driver.memory;
        let number = self.offered[usize::from(queue)];
        let first = number % 8 * 4;
        for (at, &(address, length, write)) in (first..).zip(segments) {
            let more = usize::from(at - first) + 1 < segments.len();
            let flags = u16::from(more) | if write { 2 } else { 0 };
            let fields =
                u128::from(address) | u128::from(length) << 64 | u128::from(flags) << 96 | u128::from(at + 1) << 112;
            memory.write_obj(fields, GuestAddress(base(queue) + 16 * u64::from(at))).unwrap();
        }
        let ring = base(queue) + 0x4000;
        memory.write_obj(first, GuestAddress(ring + 4 + 2 * u64::from(number % QUEUE_SIZE))).unwrap();
        memory.write_obj(number + 1, GuestAddress(ring + 2)).unwrap();
        self.offered[usize::from(queue)] += 1;
        self.kick(queue);
    }

    fn kick(&mut self, queue: u16) {
        self.driver.select(queue);
        self.driver.kick();
    }

    /// How many requests of `queue` are done.
    fn done(&self, queue: u16) -> u16 {
        self.driver.memory.read_obj(GuestAddress(base(queue) + 0x8002)).unwrap()
    }

    /// Sends a command on a control queue. What is answered, if it is.
    fn command(&mut self, queue: u16, command: &[u8]) -> Option<u8> {
        let (at, answer) = (buffer(queue), buffer(queue) + 0x100);
        self.driver.memory.write_slice(command, GuestAddress(at)).unwrap();
        self.driver.memory.write_obj(0xffu8, GuestAddress(answer)).unwrap();
        let before = self.done(queue);
        let length = u32::try_from(command.len()).unwrap();
        self.offer(queue, &[(at, length, false), (answer, 1, true)]);
        let answered = self.done(queue) == before + 1;
        answered.then(|| self.driver.memory.read_obj(GuestAddress(answer)).unwrap())
    }

    fn use_pairs(&mut self, pairs: u16) -> Option<u8> {
        let [low, high] = pairs.to_le_bytes();
        self.command(CONTROL, &[4, 0, low, high])
    }

    fn used(&self) -> Vec<bool> {
        self.told.iter().map(|told| lock(told).used).collect()
    }

    /// Offers a buffer for a frame to the guest. Whether there is one.
    fn receives(&mut self, pair: u16) -> bool {
        let before = self.done(2 * pair);
        self.offer(2 * pair, &[(buffer(2 * pair), 2000, true)]);
        self.done(2 * pair) > before
    }

    /// Sends a frame. Whether the host has it.
    fn sends(&mut self, pair: u16) -> bool {
        let before = self.done(2 * pair + 1);
        self.offer(2 * pair + 1, &[(buffer(2 * pair + 1), 72, false)]);
        assert_eq!(self.done(2 * pair + 1), before + 1, "what is sent is done");
        self.hosts[usize::from(pair)].recv(&mut [0; 100]).is_ok()
    }
}

#[test]
fn the_guest_is_told_how_many_there_are() {
    let mut machine = Machine::new(BothWays::default());
    let driver = &mut machine.driver;
    assert_eq!(driver.offered() & (MQ | 1 << 17), MQ | 1 << 17);
    let mut pairs = [0; 2];
    driver.transport.read(0x100 + 8, &mut pairs);
    assert_eq!(u16::from_le_bytes(pairs), PAIRS);
    for (queue, most) in (0..=CONTROL + 1).zip([32, 32, 32, 32, 32, 32, 64, 0]) {
        driver.set(0x30, queue.into());
        assert_eq!(driver.get(0x34), most, "queue {queue}");
    }
}

#[test]
fn pairs_are_used_as_the_driver_says() {
    let mut machine = Machine::started(BothWays::default(), 0);
    for host in &machine.hosts {
        host.send(&[0; 72]).unwrap();
    }
    assert!(machine.receives(0) && machine.sends(0));
    assert_eq!(machine.used(), [false, false], "a driver begins with one");
    assert!(!machine.receives(1) && !machine.sends(1));
    assert_eq!(machine.counters.values()["errors"], 1, "what was sent where nothing is sent is lost");

    assert_eq!(machine.use_pairs(2), Some(OK));
    assert_eq!(machine.used(), [true, false]);
    machine.kick(2);
    assert_eq!(machine.done(2), 1, "the buffer was there before");
    assert!(machine.sends(1) && !machine.receives(2));
    assert_eq!(machine.counters.values()["rx_frames"], 2);

    assert_eq!((machine.use_pairs(3), machine.used()), (Some(OK), vec![true, true]));
    machine.kick(4);
    assert_eq!(machine.done(4), 1);
    assert_eq!((machine.use_pairs(1), machine.used()), (Some(OK), vec![false, false]));
    assert!(!machine.sends(2) && machine.sends(0));
}

#[test]
fn another_driver_begins_anew() {
    let mut machine = Machine::started(BothWays::default(), 0);
    assert_eq!((machine.use_pairs(3), machine.used()), (Some(OK), vec![true, true]));
    // It knows of one pair, and has its control queue behind that.
    machine.start(MQ);
    machine.hosts[0].send(&[0; 72]).unwrap();
    assert!(machine.receives(0) && machine.sends(0));
    assert_eq!(machine.used(), [false, false], "whatever the one before has said");
    assert_eq!(machine.command(CONTROL_OF_ONE, &[4, 0, 2, 0]), Some(ERR));
    assert_eq!(machine.command(CONTROL, &[4, 0, 2, 0]), Some(ERR));
    assert!(!machine.sends(2));
    assert_eq!(machine.used(), [false, false]);
    // And one that knows of all, though only its control queue is ever looked at.
    machine.start(0);
    assert_eq!((machine.use_pairs(2), machine.used()), (Some(OK), vec![true, false]));
}

#[test]
fn commands_that_make_no_sense_are_answered_so() {
    let mut machine = Machine::started(BothWays::default(), 0);
    assert_eq!(machine.use_pairs(2), Some(OK));
    for command in [
        &[4, 0, 0, 0][..],
        &[4, 0, 4, 0],
        &[4, 0, 1, 1],
        &[4, 0, 0xff, 0xff],
        &[4, 1, 1, 0],
        &[0, 0, 1, 0],
        &[4, 0, 1],
        &[4],
    ] {
        assert_eq!(machine.command(CONTROL, command), Some(ERR), "{command:?}");
    }
    let at = buffer(CONTROL);
    machine.driver.memory.write_slice(&[4, 0, 1, 0], GuestAddress(at)).unwrap();
    let done = machine.done(CONTROL);
    // Without a place for the answer, with the answer first, in memory that is not there.
    machine.offer(CONTROL, &[(at, 4, false)]);
    machine.offer(CONTROL, &[(at + 0x100, 1, true), (at, 4, false)]);
    machine.offer(CONTROL, &[(u64::MAX - 1, 4, false), (at + 0x100, 1, true)]);
    assert_eq!(machine.done(CONTROL), done + 3);
    assert_eq!(machine.used(), [true, false], "as before");
    assert!(!machine.driver.needs_reset());
    assert_eq!(machine.use_pairs(1), Some(OK));
}

#[test]
fn what_the_host_refuses_is_refused() {
    let mut machine = Machine::started(BothWays::default(), 0);
    lock(&machine.told[1]).refuses = true;
    assert_eq!((machine.use_pairs(3), machine.used()), (Some(ERR), vec![false, false]));
    assert_eq!((machine.use_pairs(2), machine.used()), (Some(OK), vec![true, false]));
}

/// Each change costs the host something that all of its interfaces wait for.
#[test]
fn changes_have_a_limit() {
    let mut machine = Machine::started(BothWays::default(), 0);
    let begin = Instant::now();
    let changes = (0..40).take_while(|round| machine.use_pairs(2 - round % 2) == Some(OK)).count();
    let most = 16 + 16 * (begin.elapsed().as_secs() as usize + 1);
    assert!((16..=most).contains(&changes), "{changes}");
    // What is as before is no change, and is answered once it can be.
    while machine.done(CONTROL) < machine.offered[usize::from(CONTROL)] {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
        machine.kick(CONTROL);
    }
}

#[test]
fn a_limit_is_that_of_all_pairs() {
    let rate = Rate { size: 1, one_time_burst: 0, refill_time: Duration::from_secs(3600) };
    let limited = || Limiter::new(None, Some(rate));
    let mut machine = Machine::started(BothWays { received: limited(), sent: limited() }, 0);
    assert_eq!(machine.use_pairs(3), Some(OK));
    assert!(machine.sends(1));
    for pair in [0, 2] {
        machine.offer(2 * pair + 1, &[(buffer(2 * pair + 1), 72, false)]);
        assert_eq!(machine.done(2 * pair + 1), 0, "pair {pair}: one an hour");
    }
    for host in &machine.hosts {
        host.send(&[0; 72]).unwrap();
    }
    let received = (0..PAIRS).filter(|pair| machine.receives(*pair)).count();
    assert!(received == 1 && machine.counters.values()["throttled"] >= 4, "{received}");
}

#[test]
fn each_pair_has_a_thread_that_hears_its_host() {
    let mut machine = Machine::started(BothWays::default(), 0);
    assert_eq!(machine.use_pairs(3), Some(OK));
    for pair in 0..PAIRS {
        assert!(!machine.receives(pair));
    }
    let workers = machine.driver.start_workers();
    assert_eq!(workers.len(), usize::from(PAIRS));
    for pair in (0..PAIRS).rev() {
        machine.hosts[usize::from(pair)].send(&[0; 72]).unwrap();
        let begin = Instant::now();
        while machine.done(2 * pair) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "nobody has heard of pair {pair}");
            std::thread::yield_now();
        }
    }
}

proptest! {
    /// Whatever a driver says on a control queue, it is answered, and the host does what was said last and made sense.
    #[test]
    fn any_command_is_answered(
        commands in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..8), 0u8..4, any::<bool>()), 1..12),
    ) {
        let mut machine = Machine::started(BothWays::default(), 0);
        machine.kick(0);
        let mut pairs = 1;
        for (bytes, few, is_set) in commands {
            let command = if is_set { vec![4, 0, few, 0] } else { bytes };
            let answer = machine.command(CONTROL, &command);
            let wanted = match command[..] {
                [4, 0, low, high, ..] => Some(u16::from_le_bytes([low, high])),
                _ => None,
            };
            let good = wanted.filter(|wanted| (1..=PAIRS).contains(wanted));
            prop_assert_eq!(answer, Some(if good.is_some() { OK } else { ERR }));
            pairs = good.unwrap_or(pairs);
            prop_assert_eq!(machine.used(), vec![pairs > 1, pairs > 2]);
        }
    }
}
