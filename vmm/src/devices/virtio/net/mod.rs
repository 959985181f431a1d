// SPDX-License-Identifier: Apache-2.0
//! virtio network device (virtio 1.2, section 5.1): one or several pairs of queues, one for each direction, frames to the guest in as
//! many buffers as they need. Where frames go is a [`Link`]: a tap, where checksums and segmentation are left to whoever is better at
//! it, or a program's socket. Each pair has a link of its own, and a thread.
//!
//! A frame is copied once, into memory of our own: a guest can change what it has given at any time, and the host's kernel would
//! read a header twice.

mod control;
mod frame;
mod interface;
mod link;
mod mac;
mod offload;
mod pairs;
pub mod passt;
pub mod statistics;
pub mod stream;
pub mod tap;
pub mod vhost;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_MQ, VIRTIO_NET_F_MRG_RXBUF};
use vm_memory::Bytes;

use super::limit::BothWays;
use super::vectors::{Direction, Vectors};
use super::{ConfigSpace, Lane, Ready, Request, Segment, Source, VirtioDevice, cut, gather, length, scatter};
use crate::complaints::Complaints;
use crate::devices::bus::lock;
use crate::memory::GuestMemory;
use crate::observe::devices::TrafficCounters;
use crate::state::LaneState;

use control::Control;
use frame::{EMPTY, FRAME_MAX, HEADER_SIZE};
use pairs::Pairs;

pub use interface::Interface;
pub use link::Link;
pub use mac::Mac;
pub use pairs::Switch;
pub use vhost::Vhost;

/// Where `num_buffers` is in it: the only field that is the device's own.
const BUFFERS: Range<u64> = 10..12;
/// Of a pair, the queue of frames for the guest,
const RECEIVE: usize = 0;
/// and that of frames from it.
const SEND: usize = 1;
/// Queues of a pair.
const PAIR: usize = 2;

/// A network interface, as the frames of one pair of its queues are moved.
#[derive(Debug)]
pub struct Net {
    /// The host's end of this pair.
    link: Box<dyn Link>,
    /// Of the first pair only: those of the others, until they are lanes.
    others: Vec<Box<dyn Link>>,
    shared: Arc<Shared>,
    /// Which pair.
    pair: u16,
    /// Who is there.
    driver: u32,
    /// The driver takes a frame in several buffers.
    merges: bool,
    /// Where it has its control queue, if it has one,
    control_at: Option<usize>,
    /// and what serves that if it is one of this lane's.
    control: Control,
    received: Received,
    sent: Vec<u8>,
}

/// What all pairs have in common.
#[derive(Debug)]
struct Shared {
    interface: Interface,
    queue_sizes: Vec<u16>,
    /// For messages.
    name: String,
    space: ConfigSpace,
    pairs: Arc<Pairs>,
    /// None where no frame ever waits: then threads do not meet there.
    limits: Option<Mutex<BothWays>>,
    complaints: Mutex<Complaints>,
    counters: Arc<TrafficCounters>,
}

impl Shared {
    /// Asks or pays the limits, if there are any.
    fn limited<T: Default>(&self, action: impl FnOnce(&mut BothWays) -> T) -> T {
        self.limits.as_ref().map(|limits| action(&mut lock(limits))).unwrap_or_default()
    }
}

/// What a queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Receive,
    Send,
    Control,
}

/// A frame on its way to the guest.
#[derive(Debug)]
struct Received {
    buffer: Box<[u8]>,
    /// Its length with its header; 0 if there is none.
    length: usize,
    /// How much of it is in buffers that the guest has not been told of,
    done: usize,
    /// how many those are,
    buffers: u16,
    /// and where the first one wants their number.
    count: Vec<Segment>,
}

impl Received {
    fn new() -> Self {
        Self { buffer: vec![0; FRAME_MAX].into(), length: 0, done: 0, buffers: 0, count: Vec::new() }
    }

    fn forget(&mut self) {
        (self.length, self.done, self.buffers) = (0, 0, 0);
        self.count.clear();
    }

    /// Begins anew with the same frame.
    fn again(&mut self) {
        (self.done, self.buffers) = (0, 0);
        self.count.clear();
    }
}

/// Why a frame is lost.
#[derive(Debug, thiserror::Error)]
enum FrameError {
    #[error("the request breaks the rules of the protocol")]
    Malformed,
    #[error("the driver's buffers are too small for a frame of {0} bytes")]
    TooLong(usize),
    #[error("guest memory")]
    Memory(#[from] vm_memory::GuestMemoryError),
    #[error("the host")]
    Host(#[source] io::Error),
}

impl Net {
    /// An interface whose other end is `link`, called `name` on the host; with `others`, there is one more pair of queues for each of
    /// those. `limits` are those of all frames to the guest and from it.
    #[must_use]
    pub fn new(
        link: Box<dyn Link>,
        mut others: Vec<Box<dyn Link>>,
        name: String,
        interface: Interface,
        limits: BothWays,
    ) -> Self {
        let pairs = Arc::new(Pairs::new(others.iter_mut().map(|link| link.switch()).collect()));
        let shared = Shared {
            queue_sizes: interface.queue_sizes(pairs.most()),
            space: interface.config(pairs.most(), true).into(),
            interface,
            name,
            pairs,
            limits: (!limits.is_unlimited()).then(|| Mutex::new(limits)),
            complaints: Mutex::default(),
            counters: Arc::new(TrafficCounters::of_frames()),
        };
        Self { others, ..Self::lane(link, Arc::new(shared), 0) }
    }

    /// What serves pair `pair`.
    fn lane(link: Box<dyn Link>, shared: Arc<Shared>, pair: u16) -> Self {
        let control = Control::new(Arc::clone(&shared.pairs));
        let (received, sent) = (Received::new(), Vec::new());
        let (merges, control_at, others) = (false, None, Vec::new());
        Self { link, others, shared, pair, driver: 0, merges, control_at, control, received, sent }
    }

    /// What it counts by.
    #[must_use]
    pub fn counters(&self) -> Arc<TrafficCounters> {
        Arc::clone(&self.shared.counters)
    }

    /// Its first queue.
    fn first(&self) -> usize {
        PAIR * usize::from(self.pair)
    }

    /// What `queue` is for. One that is for nothing, as the driver has it, is a control queue where no command is known.
    fn role(&self, queue: usize) -> Role {
        match queue.checked_sub(self.first()).filter(|_| self.control_at != Some(queue)) {
            Some(RECEIVE) => Role::Receive,
            Some(SEND) => Role::Send,
            _ => Role::Control,
        }
    }

    /// Whether the driver uses this pair.
    fn is_used(&self) -> bool {
        self.pair == 0 || self.pair < self.shared.pairs.used(self.driver)
    }

    /// Whether there is a frame for the guest; takes one from the host if so.
    fn fetch(&mut self) -> bool {
        if self.received.length > 0 {
            return true;
        }
        loop {
            match self.link.receive(&mut self.received.buffer) {
                Ok(0) => return false,
                Ok(length) if length <= HEADER_SIZE => self.shared.counters.lost(),
                Ok(length) => {
                    self.received.length = length;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    self.complain(&FrameError::Host(error));
                    return false;
                }
            }
        }
    }

    /// Puts what is left of the frame into the buffer that `request` is. How much it took.
    fn receive(&mut self, memory: &GuestMemory, request: &Request) -> Result<u32, FrameError> {
        let room = length(&request.writable);
        if !request.is_well_formed() || !request.readable.is_empty() || room < HEADER_SIZE as u64 {
            return Err(FrameError::Malformed);
        }
        let Received { buffer, length, done, buffers, count } = &mut self.received;
        let left = buffer.get(*done..*length).unwrap_or_default();
        if !self.merges && (left.len() as u64) > room {
            let error = FrameError::TooLong(*length);
            self.complain(&error);
            self.received.forget();
            // Every driver passes over a frame that is too short. EDK2's gets no further at one without a header.
            let written = scatter(memory, &request.writable, 0, &EMPTY)?;
            return Ok(u32::try_from(written).unwrap_or(u32::MAX));
        }
        if *buffers == 0 {
            count.extend(cut(&request.writable, BUFFERS));
        }
        let taken = scatter(memory, &request.writable, 0, left)?;
        *done += taken;
        *buffers += 1;
        if done == length {
            let mut number = buffers.to_le_bytes().into_iter();
            for segment in count.iter() {
                for (offset, byte) in (0..u64::from(segment.length)).zip(&mut number) {
                    memory.write_obj(byte, vm_memory::GuestAddress(segment.address.0 + offset))?;
                }
            }
            let frame = *length;
            self.shared.counters.received((frame - HEADER_SIZE) as u64);
            self.shared.limited(|limits| limits.received.pay(frame as u64));
            self.received.forget();
        }
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Gives the frame in `request` to the host.
    fn send(&mut self, memory: &GuestMemory, request: &Request) -> Result<(), FrameError> {
        let bytes = usize::try_from(length(&request.readable)).unwrap_or(usize::MAX);
        if !request.is_well_formed() || bytes <= HEADER_SIZE || bytes > FRAME_MAX {
            return Err(FrameError::Malformed);
        }
        let sent = if self.link.sends_pieces() {
            self.link.send_pieces(&Vectors::new(memory, &request.readable, Direction::Write)?)
        } else {
            self.sent.resize(bytes, 0);
            gather(memory, &request.readable, 0, &mut self.sent)?;
            self.link.send(&self.sent)
        };
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => FrameError::Malformed,
            _ => FrameError::Host(error),
        })?;
        self.shared.counters.sent((bytes - HEADER_SIZE) as u64);
        Ok(())
    }

    /// A frame is lost. The guest and its peers live with that; what the host is to blame for is said now and then.
    fn complain(&self, error: &FrameError) {
        self.shared.counters.lost();
        // A pair that is used no more, by now, loses what it had.
        let host = match error {
            FrameError::Host(host) if self.is_used() => host,
            _ => {
                tracing::debug!(error = error as &dyn std::error::Error, "a frame is lost");
                return;
            }
        };
        if let Some(count) = lock(&self.shared.complaints).count() {
            tracing::warn!("network {}: {count} frame(s) lost: {host}", self.shared.name);
        }
    }

    /// Whether the queue of frames for the guest, or that of frames from it, can have one moved.
    fn can_move(&mut self, to_guest: bool) -> Ready {
        let is_used = self.is_used();
        if !is_used {
            self.received.forget();
            if to_guest {
                // Nothing comes.
                return Ready::WhenWoken;
            }
        }
        // In the midst of a frame that is paid for as a whole.
        let wait = match to_guest {
            _ if self.holds() => Duration::ZERO,
            true => self.shared.limited(|limits| limits.received.wait(Instant::now())),
            false => self.shared.limited(|limits| limits.sent.wait(Instant::now())),
        };
        if !wait.is_zero() {
            self.shared.counters.throttled();
            return Ready::In(wait);
        }
        // What the driver has in a pair that is not used is lost, which costs as much.
        let can = if to_guest { self.fetch() } else { !is_used || self.link.has_room() };
        if can { Ready::Now } else { Ready::WhenWoken }
    }
}

impl VirtioDevice for Net {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_NET
    }

    fn features(&self) -> u64 {
        self.shared.interface.features(self.shared.pairs.most()) | self.link.features()
    }

    fn config(&self) -> ConfigSpace {
        self.shared.space.clone()
    }

    fn lanes(&mut self) -> Vec<Lane> {
        let last = self.others.len();
        let lane = |(pair, link): (u16, Box<dyn Link>)| {
            let device = Box::new(Self::lane(link, Arc::clone(&self.shared), pair));
            // The last one has the control queue.
            Lane { queues: if usize::from(pair) == last { PAIR + 1 } else { PAIR }, device }
        };
        (1..).zip(self.others.drain(..)).map(lane).collect()
    }

    fn turned(&mut self) {
        self.shared.space.change(interface::STATUS, &interface::status(self.link.is_up()));
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.shared.queue_sizes
    }

    fn activate(&mut self, features: u64) {
        let has = |bit: u32| features & (1 << bit) != 0;
        self.merges = has(VIRTIO_NET_F_MRG_RXBUF);
        self.driver = self.shared.space.driver();
        let pairs = if has(VIRTIO_NET_F_MQ) { self.shared.pairs.most() } else { 1 };
        self.control_at = has(VIRTIO_NET_F_CTRL_VQ).then(|| PAIR * usize::from(pairs));
        self.control.activate(self.driver, features);
        self.shared.pairs.follow(|| self.shared.space.driver());
        if self.pair > 0 {
            // What is accepted holds for all of the link, and of a pair that is not used the host takes nothing.
            return;
        }
        if let Err(error) = self.link.accept(features) {
            tracing::info!(%error, name = self.shared.name, "no offloads");
        }
    }

    fn sources(&self) -> Vec<Source> {
        let receive = Source::readable(self.link.incoming(), self.first() + RECEIVE);
        let send = self.link.outgoing().map(|descriptor| Source::writable(descriptor, self.first() + SEND));
        [receive].into_iter().chain(send).collect()
    }

    fn ready(&mut self, queue: usize) -> Ready {
        match self.role(queue) {
            Role::Receive => self.can_move(true),
            Role::Send => self.can_move(false),
            Role::Control => self.control.ready(),
        }
    }

    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        match self.role(queue) {
            Role::Receive => self.receive(memory, request).unwrap_or_else(|error| {
                self.complain(&error);
                self.received.forget();
                0
            }),
            Role::Send => {
                // Whatever becomes of it: a frame that is refused has cost as much.
                let bytes = length(&request.readable).min(FRAME_MAX as u64);
                self.shared.limited(|limits| limits.sent.pay(bytes));
                if !self.is_used() {
                    self.shared.counters.lost();
                } else if let Err(error) = self.send(memory, request) {
                    self.complain(&error);
                }
                0
            }
            Role::Control => self.control.handle(memory, request),
        }
    }

    fn holds(&self) -> bool {
        self.received.done > 0
    }

    fn put_back(&mut self, forever: bool) {
        if forever {
            self.complain(&FrameError::TooLong(self.received.length));
            self.received.forget();
        }
        self.received.again();
    }

    fn reset(&mut self) {
        self.merges = false;
        self.received.forget();
    }

    /// A frame that is on its way is lost, as frames are.
    fn save(&mut self) -> Option<LaneState> {
        Some(LaneState::Net { pairs: self.shared.pairs.used(self.driver) })
    }

    fn restore(&mut self, state: LaneState) {
        // The last one has the control queue, and knows best: others may have been saved before its last command was done.
        if let LaneState::Net { pairs } = state
            && self.pair + 1 == self.shared.pairs.most()
        {
            self.shared.pairs.restore(self.driver, pairs);
        }
    }

    fn renewed(&self) -> Range<usize> {
        interface::RENEWED
    }
}
