// SPDX-License-Identifier: Apache-2.0
//! virtio socket device (virtio 1.2, section 5.10): connections between programs of the guest and of the host, without a network.
//!
//! Only streams. What each side has room for is known to the other, so nothing is dropped: what the host does not take waits in a
//! bounded buffer for each connection, and what the guest does not take waits in the host's sockets.

mod connection;
mod hub;
mod packet;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;
use vm_memory::GuestMemoryError;

use super::limit::BothWays;
use super::{ConfigSpace, Ready, Request, Source, VirtioDevice, gather, length, scatter};
use crate::memory::GuestMemory;
use crate::observe::devices::TrafficCounters;
use crate::sandbox::Kind;
use crate::state::LaneState;
use connection::ROOM;
use hub::{Hub, RETRY};
use packet::{HEADER_SIZE, HOST_CID, Header};

/// `VIRTIO_VSOCK_F_STREAM`.
const FEATURE_STREAM: u64 = 1;
/// As vhost-vsock has it under QEMU. Linux fills the queue with buffers of 4 KiB at once, most of which are never used.
const QUEUE_SIZE: u16 = 128;
const EVENT_QUEUE_SIZE: u16 = 8;
/// The queue of packets for the guest,
const RECEIVE: usize = 0;
/// that of packets from it,
const SEND: usize = 1;
/// and that of events.
const EVENT: usize = 2;
/// The only event: all connections are gone, and the guest may have another context id (`VIRTIO_VSOCK_EVENT_TRANSPORT_RESET`).
const TRANSPORT_RESET: [u8; 4] = [0; 4];
/// What a guest has to hear of a reset that it has been told of,
const HEARS: Duration = Duration::from_millis(100);
/// and to be told at all: one that gives no buffers for events never is.
const TOLD: Duration = Duration::from_secs(1);
/// Most bytes behind a header: as many as a connection has room for. Linux sends at most 64 KiB.
const DATA_MAX: usize = ROOM as usize;

/// A device that connects programs.
#[derive(Debug)]
pub struct Vsock {
    cid: u32,
    hub: Hub,
    data: Vec<u8>,
    limits: BothWays,
    counters: Arc<TrafficCounters>,
    /// The guest knows connections that are not there, and has not been told.
    resets: bool,
    /// Until when programs that connect wait: to a guest that has not heard of the reset, theirs would be one of those.
    settles: Option<Instant>,
}

/// Why a packet from the guest is not taken.
#[derive(Debug, thiserror::Error)]
enum PacketError {
    #[error("the request breaks the rules of the protocol")]
    Malformed,
    #[error("guest memory")]
    Memory(#[from] GuestMemoryError),
}

impl Vsock {
    /// One for the guest whose context id is `cid`. Programs of the host connect to what listens at `path`, and take connections at
    /// paths that begin so. `limits` are those of packets to the guest and from it.
    pub fn new(cid: u32, listener: UnixListener, path: PathBuf, limits: BothWays) -> io::Result<Self> {
        let hub = Hub::new(cid.into(), listener, path)?;
        let counters = Arc::new(TrafficCounters::of_packets());
        Ok(Self { cid, hub, data: Vec::new(), limits, counters, resets: false, settles: None })
    }

    /// What it counts by.
    #[must_use]
    pub fn counters(&self) -> Arc<TrafficCounters> {
        Arc::clone(&self.counters)
    }

    /// Puts a packet into the buffer that `request` is. How long it is.
    fn receive(&mut self, memory: &GuestMemory, request: &Request) -> Result<u32, PacketError> {
        let room = usize::try_from(length(&request.writable)).unwrap_or(usize::MAX);
        // Not one byte of data would be no progress.
        if !request.is_well_formed() || !request.readable.is_empty() || room <= HEADER_SIZE {
            return Err(PacketError::Malformed);
        }
        let Some((header, data)) = self.hub.packet(room - HEADER_SIZE) else { return Ok(0) };
        let header = header.bytes();
        for (bytes, from) in [(header.as_slice(), 0), (data, HEADER_SIZE as u64)] {
            scatter(memory, &request.writable, from, bytes)?;
        }
        let bytes = data.len();
        self.counters.received(bytes as u64);
        self.limits.received.pay(bytes as u64);
        Ok(u32::try_from(HEADER_SIZE + bytes).unwrap_or(u32::MAX))
    }

    /// Takes the packet that `request` is.
    fn send(&mut self, memory: &GuestMemory, request: &Request) -> Result<(), PacketError> {
        let bytes = usize::try_from(length(&request.readable)).unwrap_or(usize::MAX);
        if !request.is_well_formed() || !(HEADER_SIZE..=HEADER_SIZE + DATA_MAX).contains(&bytes) {
            return Err(PacketError::Malformed);
        }
        self.data.resize(bytes, 0);
        gather(memory, &request.readable, 0, &mut self.data)?;
        let (header, data) = self.data.split_first_chunk::<HEADER_SIZE>().ok_or(PacketError::Malformed)?;
        let header = Header::read(header);
        let data = data.get(..header.length as usize).ok_or(PacketError::Malformed)?;
        if header.source != u64::from(self.cid) || header.destination != HOST_CID {
            return Err(PacketError::Malformed);
        }
        let count = data.len();
        if !self.hub.take(&header, data) {
            return Err(PacketError::Malformed);
        }
        self.counters.sent(count as u64);
        Ok(())
    }

    /// How long it is to be until there may be packets for the guest, if it is not over.
    fn settling(&mut self, now: Instant) -> Option<Duration> {
        if self.resets {
            // From here on, and not since it was restored: it may have rested for long.
            self.settles.get_or_insert(now + TOLD);
        }
        let wait = self.settles?.checked_duration_since(now).filter(|wait| !wait.is_zero());
        if wait.is_none() && !self.resets {
            self.settles = None;
        }
        // It may be told meanwhile.
        wait.map(|wait| wait.min(HEARS))
    }

    fn complain(&self, error: &PacketError) {
        self.counters.lost();
        tracing::debug!(error = error as &dyn std::error::Error, "vsock packet");
    }
}

impl VirtioDevice for Vsock {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_VSOCK
    }

    fn features(&self) -> u64 {
        FEATURE_STREAM
    }

    fn config(&self) -> ConfigSpace {
        u64::from(self.cid).to_le_bytes().to_vec().into()
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE, QUEUE_SIZE, EVENT_QUEUE_SIZE]
    }

    fn thread(&self) -> Kind {
        Kind::Vsock
    }

    fn sources(&self) -> Vec<Source> {
        vec![Source::readable(self.hub.incoming(), RECEIVE), Source::readable(self.hub.outgoing(), SEND)]
    }

    fn ready(&mut self, queue: usize) -> Ready {
        if queue == EVENT {
            return if self.resets { Ready::Now } else { Ready::WhenWoken };
        }
        if queue == RECEIVE {
            let now = Instant::now();
            self.hub.look_for_room(now);
            if let Some(wait) = self.settling(now) {
                return Ready::In(wait);
            }
        }
        if queue == SEND {
            // Not for the guest's sake: programs have room for what has waited.
            self.hub.flush();
        }
        let wait = self.limits.of(queue).wait(Instant::now());
        if !wait.is_zero() {
            self.counters.throttled();
            return Ready::In(wait);
        }
        match queue {
            RECEIVE if self.hub.has_packet() => Ready::Now,
            SEND => Ready::Now,
            _ => Ready::WhenWoken,
        }
    }

    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        if queue == EVENT {
            self.resets = false;
            self.settles = Some(Instant::now() + HEARS);
            let written = scatter(memory, &request.writable, 0, &TRANSPORT_RESET);
            return written.ok().and_then(|written| u32::try_from(written).ok()).unwrap_or(0);
        }
        if queue == RECEIVE {
            return self.receive(memory, request).unwrap_or_else(|error| {
                self.complain(&error);
                0
            });
        }
        // Whatever becomes of it: a packet that is refused has cost as much.
        self.limits.sent.pay(length(&request.readable).min(DATA_MAX as u64));
        if let Err(error) = self.send(memory, request) {
            self.complain(&error);
        }
        0
    }

    /// A program of the host waits until a descriptor can be had for it.
    fn retry(&self) -> Option<Duration> {
        self.hub.is_full().then_some(RETRY)
    }

    /// Its guest has heard nothing meanwhile.
    fn resume(&mut self) {
        self.settles = self.settles.map(|_| Instant::now() + if self.resets { TOLD } else { HEARS });
    }

    fn reset(&mut self) {
        self.hub.reset();
        (self.resets, self.settles) = (false, None);
    }

    /// Programs of the host cannot be saved, and so connections to them cannot.
    fn restore(&mut self, _: LaneState) {
        (self.resets, self.settles) = (true, None);
        self.hub.begin_elsewhere();
    }

    /// A guest asks for its context id when it hears of a reset.
    fn renewed(&self) -> Range<usize> {
        0..size_of::<u64>()
    }
}
