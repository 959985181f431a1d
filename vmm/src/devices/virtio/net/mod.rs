// SPDX-License-Identifier: Apache-2.0
//! virtio network device (virtio 1.2, section 5.1): one queue for each direction, frames to the guest in as many buffers as they need.
//! Where frames go is a [`Link`]: a tap, where checksums and segmentation are left to whoever is better at it, or a program's socket.
//!
//! A frame is copied once, into memory of our own: a guest can change what it has given at any time, and the host's kernel would
//! read a header twice.

mod frame;
mod interface;
mod link;
mod mac;
pub mod passt;
pub mod stream;
pub mod tap;
pub mod vhost;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use virtio_bindings::virtio_ids::VIRTIO_ID_NET;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use vm_memory::Bytes;

use super::limit::BothWays;
use super::{ConfigSpace, Ready, Request, Segment, Source, VirtioDevice, cut, gather, length, scatter};
use crate::complaints::Complaints;
use crate::memory::GuestMemory;
use crate::observe::devices::TrafficCounters;

use frame::{FRAME_MAX, HEADER_SIZE};

pub use interface::Interface;
pub use link::Link;
pub use mac::Mac;
pub use vhost::Vhost;

/// Where `num_buffers` is in it: the only field that is the device's own.
const BUFFERS: std::ops::Range<u64> = 10..12;
/// The queue of frames for the guest,
const RECEIVE: usize = 0;
/// and that of frames from it.
const SEND: usize = 1;

/// A network interface.
#[derive(Debug)]
pub struct Net {
    link: Box<dyn Link>,
    interface: Interface,
    queue_sizes: [u16; 2],
    /// For messages.
    name: String,
    /// The driver takes a frame in several buffers.
    merges: bool,
    space: ConfigSpace,
    received: Received,
    sent: Vec<u8>,
    limits: BothWays,
    complaints: Complaints,
    counters: Arc<TrafficCounters>,
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
    /// An interface whose other end is `link`, called `name` on the host. `limits` are those of frames to the guest and from it.
    #[must_use]
    pub fn new(link: Box<dyn Link>, name: String, interface: Interface, limits: BothWays) -> Self {
        let (received, sent) = (Received::new(), Vec::with_capacity(FRAME_MAX));
        let (complaints, counters) = (Complaints::default(), Arc::new(TrafficCounters::of_frames()));
        let queue_sizes = [interface.queue_size; 2];
        Self {
            link,
            interface,
            queue_sizes,
            name,
            merges: false,
            space: interface.config(true).into(),
            received,
            sent,
            limits,
            complaints,
            counters,
        }
    }

    /// What it counts by.
    #[must_use]
    pub fn counters(&self) -> Arc<TrafficCounters> {
        Arc::clone(&self.counters)
    }

    /// Whether there is a frame for the guest; takes one from the host if so.
    fn fetch(&mut self) -> bool {
        if self.received.length > 0 {
            return true;
        }
        loop {
            match self.link.receive(&mut self.received.buffer) {
                Ok(0) => return false,
                Ok(length) if length <= HEADER_SIZE => self.counters.lost(),
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
            return Err(FrameError::TooLong(*length));
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
            self.counters.received((frame - HEADER_SIZE) as u64);
            self.limits.received.pay(frame as u64);
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
        self.sent.resize(bytes, 0);
        gather(memory, &request.readable, 0, &mut self.sent)?;
        // What the driver says of its own buffers is nobody's business.
        if let Some(number) = self.sent.get_mut(10..12) {
            number.fill(0);
        }
        self.link.send(&self.sent).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => FrameError::Malformed,
            _ => FrameError::Host(error),
        })?;
        self.counters.sent((bytes - HEADER_SIZE) as u64);
        Ok(())
    }

    /// A frame is lost. The guest and its peers live with that; what the host is to blame for is said now and then.
    fn complain(&mut self, error: &FrameError) {
        self.counters.lost();
        let FrameError::Host(host) = error else {
            tracing::debug!(error = error as &dyn std::error::Error, "a frame is lost");
            return;
        };
        if let Some(count) = self.complaints.count() {
            tracing::warn!("network {}: {count} frame(s) lost: {host}", self.name);
        }
    }
}

impl VirtioDevice for Net {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_NET
    }

    fn features(&self) -> u64 {
        self.interface.features() | self.link.features()
    }

    fn config(&self) -> ConfigSpace {
        self.space.clone()
    }

    fn turned(&mut self) {
        self.space.change(interface::STATUS, &interface::status(self.link.is_up()));
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn activate(&mut self, features: u64) {
        self.merges = features & (1 << VIRTIO_NET_F_MRG_RXBUF) != 0;
        if let Err(error) = self.link.accept(features) {
            tracing::info!(%error, name = self.name, "no offloads");
        }
    }

    fn sources(&self) -> Vec<Source> {
        let receive = Source::readable(self.link.incoming(), RECEIVE);
        let send = self.link.outgoing().map(|descriptor| Source::writable(descriptor, SEND));
        [receive].into_iter().chain(send).collect()
    }

    fn ready(&mut self, queue: usize) -> Ready {
        // In the midst of a frame that is paid for as a whole.
        let wait = if self.holds() { std::time::Duration::ZERO } else { self.limits.of(queue).wait(Instant::now()) };
        if !wait.is_zero() {
            self.counters.throttled();
            return Ready::In(wait);
        }
        let can = if queue == RECEIVE { self.fetch() } else { self.link.has_room() };
        if can { Ready::Now } else { Ready::WhenWoken }
    }

    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        if queue == RECEIVE {
            return self.receive(memory, request).unwrap_or_else(|error| {
                self.complain(&error);
                self.received.forget();
                0
            });
        }
        // Whatever becomes of it: a frame that is refused has cost as much.
        self.limits.sent.pay(length(&request.readable).min(FRAME_MAX as u64));
        if let Err(error) = self.send(memory, request) {
            self.complain(&error);
        }
        0
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
}
