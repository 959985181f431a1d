// SPDX-License-Identifier: Apache-2.0
//! virtio block device over a raw file or block device (virtio 1.2, section 5.2).

mod direct;
mod disk;
mod erase;
mod error;
mod lost;
mod ring;
mod sector;

use std::fs::File;
use std::mem;
use std::ops;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_S_OK, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
    VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use vm_memory::{Bytes, GuestAddress};

use super::vectors::{Direction, Vectors};
use super::{
    ConfigSpace, Lane, Ready, Request, ResizeError, Segment, Source, Token, VirtioDevice, cut, gather, length, scatter,
};
use crate::bits::low32;
use crate::complaints::Complaints;
use crate::devices::bus::lock;
use crate::memory::GuestMemory;
use crate::sandbox::Kind;
use direct::bounce;
use disk::{Disk, ID_SIZE, TOPOLOGY, transfer_max};
use erase::{DISCARD_RANGES_MAX, Erase, RANGE_SIZE, Range};
use error::RequestError;
use ring::{NO_ROOM, Operation, Over, Ring};

pub use direct::Alignment;
pub use disk::Settings;
pub use error::BlockError;
pub use lost::{Lost, Written};
pub use sector::SECTOR_SIZE;

/// `struct virtio_blk_req`: type u32, reserved u32, sector u64.
const HEADER_SIZE: usize = 16;

/// A disk, as the requests of one of its queues are done.
#[derive(Debug)]
pub struct Block {
    /// Does several requests at once. Without one, each is done before the next is looked at. Goes before the disk, which has the
    /// lock: nobody else is to have the file while something is under way.
    ring: Option<Ring<Begun>>,
    disk: Arc<Disk>,
    /// Of all of the disk.
    queue_sizes: Vec<u16>,
    /// The queue that it serves.
    queue: usize,
    /// The driver did not accept FLUSH: it takes what is written for safe (virtio 1.2, section 5.2.6.2).
    write_through: bool,
    /// Bytes that one request may move.
    transfer_max: u64,
    /// It has no token, and that has been counted.
    waits: bool,
    complaints: Complaints,
}

/// What is left of a request when its header has been understood.
enum Job {
    /// Nothing. So many bytes of data were written to guest memory.
    Done(u32),
    /// All of these bytes are to go from or to `offset` of the file.
    Transfer { direction: Direction, offset: u64, vectors: Vectors },
    /// What was written before is to be safe.
    Flush,
}

/// A request that the ring does.
#[derive(Debug)]
struct Begun {
    token: Token,
    /// Where its status goes.
    status: GuestAddress,
    /// The bytes that it moves, if it does.
    moves: Option<(Direction, u64)>,
}

impl Block {
    /// A disk with the content of `file`, a regular file or a block device, open for writing unless it is read-only.
    pub fn new(file: File, settings: Settings) -> Result<Self, BlockError> {
        let queue_sizes = vec![settings.queue_size; settings.num_queues.into()];
        Ok(Self::lane(&Arc::new(Disk::new(file, settings)?), queue_sizes, 0))
    }

    /// What serves queue `queue` of `disk`.
    fn lane(disk: &Arc<Disk>, queue_sizes: Vec<u16>, queue: usize) -> Self {
        let ring = disk.io_uring.then(|| Ring::new(&disk.file, disk.queue_size, disk.lists_each())).transpose();
        let ring = ring.unwrap_or_else(|error| {
            tracing::info!(%error, disk = disk.name, "no io_uring: requests are done one after another");
            None
        });
        let disk = Arc::clone(disk);
        let mut lane = Self {
            disk,
            ring,
            queue_sizes,
            queue,
            write_through: true,
            transfer_max: 0,
            waits: false,
            complaints: Complaints::default(),
        };
        lane.reset();
        lane
    }

    /// A request has failed. What the host is to blame for is said to whoever runs it, now and then; the guest hears of all.
    fn complain(&mut self, error: &RequestError) {
        let Some(host) = error.host() else {
            tracing::debug!(error = error as &dyn std::error::Error, "disk request fails");
            return;
        };
        if let Some(count) = self.complaints.count() {
            tracing::warn!("disk {}: the host fails {count} request(s) with: {host}", self.disk.name);
        }
    }

    /// Does the request and returns how many bytes of data it wrote to guest memory.
    fn execute(&self, memory: &GuestMemory, request: &Request) -> Result<u32, RequestError> {
        match self.understand(memory, request)? {
            Job::Done(data) => Ok(data),
            Job::Transfer { direction, offset, mut vectors } => {
                let bytes = vectors.left();
                vectors.transfer(&self.disk.file, direction, offset)?;
                self.moved(direction, bytes)
            }
            Job::Flush => self.disk.flush().map(|()| 0),
        }
    }

    /// Finds out what the request asks for, and does what is neither a transfer nor a flush.
    fn understand(&self, memory: &GuestMemory, request: &Request) -> Result<Job, RequestError> {
        let header = if request.is_well_formed() { header(memory, request) } else { Err(RequestError::Malformed) };
        // Whatever becomes of it: a request that fails has cost as much.
        let bytes = header.as_ref().map_or(0, |(kind, _)| moved(*kind, request));
        lock(&self.disk.limiter).pay(bytes.min(self.transfer_max));
        let (kind, sector) = header?;
        // The last writable byte is the status; the caller saw that it is there.
        let room = length(&request.writable).saturating_sub(1);
        match kind {
            VIRTIO_BLK_T_IN => {
                let segments: Vec<_> = cut(&request.writable, 0..room).collect();
                self.transfer(memory, Direction::Read, sector, &segments)
            }
            VIRTIO_BLK_T_OUT => {
                let data = HEADER_SIZE as u64..length(&request.readable);
                let segments: Vec<_> = cut(&request.readable, data).collect();
                self.transfer(memory, Direction::Write, sector, &segments)
            }
            VIRTIO_BLK_T_DISCARD if self.disk.sparse => self.erase(memory, request, Erase::Discard),
            VIRTIO_BLK_T_WRITE_ZEROES => self.erase(memory, request, Erase::Zeroes),
            VIRTIO_BLK_T_FLUSH => Ok(Job::Flush),
            VIRTIO_BLK_T_GET_ID => {
                let count = usize::try_from(room).unwrap_or(ID_SIZE).min(ID_SIZE);
                let id = self.disk.id.get(..count).unwrap_or_default();
                Ok(Job::Done(u32::try_from(scatter(memory, &request.writable, 0, id)?).unwrap_or(0)))
            }
            other => Err(RequestError::Unsupported(other)),
        }
    }

    /// The transfer of `segments`, from or to `sector`.
    fn transfer(
        &self,
        memory: &GuestMemory,
        direction: Direction,
        sector: u64,
        segments: &[Segment],
    ) -> Result<Job, RequestError> {
        if direction == Direction::Write && self.disk.readonly {
            return Err(RequestError::ReadOnly);
        }
        let bytes = length(segments);
        let offset = self.disk.place(sector, bytes, self.transfer_max)?;
        let vectors = Vectors::new(memory, segments, direction)?;
        if self.disk.direct.is_some_and(|alignment| !vectors.are_aligned(alignment.memory, alignment.offset)) {
            bounce(&self.disk.file, direction, offset, memory, segments)?;
            return self.moved(direction, bytes).map(Job::Done);
        }
        Ok(Job::Transfer { direction, offset, vectors })
    }

    /// So many `bytes` of data were moved, and are to be safe if the driver wants that. How many were written to guest memory.
    fn moved(&self, direction: Direction, bytes: u64) -> Result<u32, RequestError> {
        if direction == Direction::Write && self.write_through {
            self.disk.flush()?;
        }
        Ok(self.disk.count(direction, bytes))
    }

    /// Erases the ranges that are the data of `request`: all of them, or none that is wrong.
    fn erase(&self, memory: &GuestMemory, request: &Request, erase: Erase) -> Result<Job, RequestError> {
        if self.disk.readonly {
            return Err(RequestError::ReadOnly);
        }
        let ranges = ranges(memory, request, erase)?;
        for range in &ranges {
            let Range { sector, sectors, .. } = *range;
            if !range.is_known(erase) {
                return Err(RequestError::Flags);
            }
            if !range.fits(erase, self.disk.sectors()) {
                return Err(RequestError::Range { sector, bytes: u64::from(sectors) * SECTOR_SIZE });
            }
        }
        for range in ranges {
            if erase == Erase::Zeroes {
                // As if they had come from the guest.
                lock(&self.disk.limiter).pay_more(u64::from(range.sectors) * SECTOR_SIZE);
            }
            range.erase(erase, &self.disk.file, self.disk.sparse)?;
        }
        if self.write_through {
            self.disk.flush()?;
        }
        Ok(Job::Done(0))
    }

    /// There is no byte for a request's status. It wrote nothing to guest memory, but was one.
    fn unanswered(&self) -> u32 {
        lock(&self.disk.limiter).pay(0);
        0
    }

    /// The request whose status goes to `status` is over. How many bytes it wrote to guest memory.
    fn answer(&mut self, memory: &GuestMemory, status: GuestAddress, result: Result<u32, RequestError>) -> u32 {
        let (code, data) = match result {
            Ok(data) => (VIRTIO_BLK_S_OK, data),
            Err(error) => {
                self.disk.counters.errors.fetch_add(1, Ordering::Relaxed);
                self.complain(&error);
                (error.status(), 0)
            }
        };
        let [code, ..] = code.to_le_bytes();
        match memory.write_obj(code, status) {
            Ok(()) => data + 1,
            Err(_) => 0,
        }
    }
}

/// Bytes of data that a request of type `kind` wants to move.
fn moved(kind: u32, request: &Request) -> u64 {
    match kind {
        VIRTIO_BLK_T_IN => length(&request.writable).saturating_sub(1),
        VIRTIO_BLK_T_OUT => length(&request.readable).saturating_sub(HEADER_SIZE as u64),
        _ => 0,
    }
}

/// Type and sector from the request's header.
fn header(memory: &GuestMemory, request: &Request) -> Result<(u32, u64), RequestError> {
    let mut bytes = [0; HEADER_SIZE];
    if gather(memory, &request.readable, 0, &mut bytes)? < HEADER_SIZE {
        return Err(RequestError::Malformed);
    }
    let [a, b, c, d, _, _, _, _, sector @ ..] = bytes;
    Ok((u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(sector)))
}

/// The ranges of a request that erases.
fn ranges(memory: &GuestMemory, request: &Request, erase: Erase) -> Result<Vec<Range>, RequestError> {
    let most = match erase {
        Erase::Discard => DISCARD_RANGES_MAX as usize,
        Erase::Zeroes => 1,
    };
    let data = HEADER_SIZE as u64..length(&request.readable);
    let bytes = usize::try_from(data.end - data.start).unwrap_or(usize::MAX);
    if !bytes.is_multiple_of(RANGE_SIZE) || !(1..=most).contains(&(bytes / RANGE_SIZE)) {
        return Err(RequestError::Malformed);
    }
    let mut all = vec![0; bytes];
    gather(memory, &request.readable, data.start, &mut all)?;
    let (ranges, _) = all.as_chunks::<RANGE_SIZE>();
    Ok(ranges.iter().copied().map(Range::read).collect())
}

/// Where the status byte goes: the last writable byte.
fn status_address(request: &Request) -> Option<GuestAddress> {
    let last = request.writable.last().filter(|_| request.complete)?;
    last.address.0.checked_add(u64::from(last.length) - 1).map(GuestAddress)
}

impl VirtioDevice for Block {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_BLOCK
    }

    fn features(&self) -> u64 {
        self.disk.features()
    }

    fn config(&self) -> ConfigSpace {
        self.disk.space.clone()
    }

    fn resize(&mut self, size: u64) -> Result<(), ResizeError> {
        self.disk.resize(size)
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn activate(&mut self, features: u64) {
        self.write_through = features & (1 << VIRTIO_BLK_F_FLUSH) == 0;
        self.transfer_max = transfer_max(features);
    }

    /// Another file, or a block device instead, may have other blocks on the host: they are a matter of speed, and a driver asks for
    /// them as it starts.
    fn renewed(&self) -> ops::Range<usize> {
        TOPOLOGY
    }

    fn reset(&mut self) {
        self.activate(0);
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        if let Some(ring) = &self.ring {
            if ring.is_stuck() {
                return Ready::In(NO_ROOM);
            }
            if !ring.has_room() {
                return Ready::WhenWoken;
            }
        }
        let wait = lock(&self.disk.limiter).wait(Instant::now());
        let waited = mem::replace(&mut self.waits, !wait.is_zero());
        if wait.is_zero() {
            return Ready::Now;
        }
        // It is asked again whenever something else is over.
        if !waited {
            self.disk.counters.throttled.fetch_add(1, Ordering::Relaxed);
        }
        Ready::In(wait)
    }

    fn lanes(&mut self) -> Vec<Lane> {
        let lane =
            |queue| Lane { queues: 1, device: Box::new(Self::lane(&self.disk, self.queue_sizes.clone(), queue)) };
        (1..self.queue_sizes.len()).map(lane).collect()
    }

    fn thread(&self) -> Kind {
        Kind::Disk
    }

    fn sources(&self) -> Vec<Source> {
        self.ring.iter().map(|ring| Source::readable(ring.as_raw_fd(), self.queue)).collect()
    }

    fn begin(&mut self, token: Token, memory: &GuestMemory, request: &Request) -> Option<u32> {
        if self.ring.is_none() {
            return Some(self.handle(token.queue, memory, request));
        }
        let Some(status) = status_address(request) else { return Some(self.unanswered()) };
        let job = self.understand(memory, request);
        let flush = self.write_through;
        let (operation, moves) = match job {
            Ok(Job::Transfer { direction, offset, vectors }) if vectors.left() > 0 => {
                let moves = Some((direction, vectors.left()));
                let flush = flush && direction == Direction::Write;
                (Operation::Transfer { direction, offset, vectors, flush }, moves)
            }
            Ok(Job::Flush) if !self.disk.readonly => (Operation::Flush, None),
            Ok(Job::Done(data)) => return Some(self.answer(memory, status, Ok(data))),
            // Nothing to move, or to make safe.
            Ok(_) => return Some(self.answer(memory, status, Ok(0))),
            Err(error) => return Some(self.answer(memory, status, Err(error))),
        };
        if let Some(ring) = &mut self.ring {
            ring.start(operation, Begun { token, status, moves });
        }
        None
    }

    fn over(&mut self, memory: &GuestMemory) -> Option<(Token, u32)> {
        let Over { purpose: Begun { token, status, moves }, flushed, result } = self.ring.as_mut()?.over()?;
        let result = if flushed { self.disk.lost.flushed(result) } else { result };
        let count = |(direction, bytes)| self.disk.count(direction, bytes);
        let result = result.map(|()| moves.map_or(0, count)).map_err(RequestError::Io);
        Some((token, self.answer(memory, status, result)))
    }

    fn retry(&self) -> Option<Duration> {
        self.ring.as_ref().filter(|ring| ring.is_stuck()).map(|_| NO_ROOM)
    }

    fn handle(&mut self, _queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        let Some(status) = status_address(request) else { return self.unanswered() };
        let result = self.execute(memory, request);
        self.answer(memory, status, result)
    }
}
