// SPDX-License-Identifier: Apache-2.0
//! virtio block device over a raw file or block device (virtio 1.2, section 5.2).

mod erase;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX,
    VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK,
    VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN,
    VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_BLOCK;
use vm_memory::{
    Bytes, GuestAddress, GuestMemory as _, GuestMemoryError, Permissions, ReadVolatile, VolatileMemoryError,
    WriteVolatile,
};

use super::limit::Limiter;
use super::{ConfigSpace, Ready, Request, Segment, VirtioDevice, cut, gather, length, scatter};
use crate::bits::low32;
use crate::complaints::Complaints;
use crate::memory::GuestMemory;
use crate::observe::devices::DiskCounters;
use erase::{DISCARD_RANGES_MAX, DISCARD_SECTORS_MAX, Erase, RANGE_SIZE, Range, ZEROES_SECTORS_MAX};

/// Bytes in a sector, the unit of the protocol and of this device.
pub const SECTOR_SIZE: u64 = 512;
/// The same, as the guest is told.
const BLOCK_SIZE: u32 = low32(SECTOR_SIZE);
const QUEUE_SIZE: u16 = 128;
/// A request is a header, data segments and a status byte.
const SEGMENTS_MAX: u32 = QUEUE_SIZE as u32 - 2;
/// Longest data segment, in bytes. With the number of segments it bounds the work of one request.
const SEGMENT_SIZE_MAX: u32 = 512 << 10;
/// What a driver that keeps to both limits can ask for at once, in bytes.
const TRANSFER_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_SIZE_MAX as u64;
/// `struct virtio_blk_req`: type u32, reserved u32, sector u64.
const HEADER_SIZE: usize = 16;
/// Bytes of a serial number.
const ID_SIZE: usize = VIRTIO_BLK_ID_BYTES as usize;

/// Why a file cannot be a disk.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Its size cannot be found.
    #[error("cannot find the size of the disk")]
    Size(#[source] io::Error),
    /// It holds nothing.
    #[error("the disk is empty")]
    Empty,
    /// It does not consist of sectors.
    #[error("the disk has {0} bytes, which is not a multiple of {SECTOR_SIZE}")]
    Ragged(u64),
}

/// Why a request fails.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the request breaks the rules of the protocol")]
    Malformed,
    #[error("request type {0} is not supported")]
    Unsupported(u32),
    #[error("a range has flags that are not supported")]
    Flags,
    #[error("the disk is read-only")]
    ReadOnly,
    #[error("sector {sector} and {bytes} bytes from it are not all on the disk, or are too much for one request")]
    Range { sector: u64, bytes: u64 },
    #[error("guest memory")]
    Memory(#[from] GuestMemoryError),
    #[error("data transfer")]
    Transfer(#[from] VolatileMemoryError),
    #[error("host I/O")]
    Io(#[from] io::Error),
}

impl RequestError {
    fn status(&self) -> u32 {
        match self {
            Self::Unsupported(_) | Self::Flags => VIRTIO_BLK_S_UNSUPP,
            _ => VIRTIO_BLK_S_IOERR,
        }
    }

    /// What the host's file system or device has said, if it is not the guest's fault.
    fn host(&self) -> Option<&io::Error> {
        match self {
            Self::Io(error) | Self::Transfer(VolatileMemoryError::IOError(error)) => Some(error),
            _ => None,
        }
    }
}

/// A disk.
#[derive(Debug)]
pub struct Block {
    file: File,
    sectors: u64,
    readonly: bool,
    /// What the guest does not need, or wants to be zero, needs no room in the file.
    sparse: bool,
    id: [u8; ID_SIZE],
    /// The driver did not accept FLUSH: it takes what is written for safe (virtio 1.2, section 5.2.6.2).
    write_through: bool,
    /// For messages.
    name: String,
    complaints: Complaints,
    limiter: Limiter,
    counters: Arc<DiskCounters>,
}

impl Block {
    /// A disk with the content of `file`, a regular file or a block device, open for writing unless `readonly`. `id` is
    /// the serial number that the guest sees, cut to 20 bytes.
    pub fn new(mut file: File, readonly: bool, id: &str) -> Result<Self, BlockError> {
        // Seeking finds the size of block devices too.
        let size = file.seek(SeekFrom::End(0)).map_err(BlockError::Size)?;
        match (size, size % SECTOR_SIZE) {
            (0, _) => return Err(BlockError::Empty),
            (_, 0) => {}
            _ => return Err(BlockError::Ragged(size)),
        }
        let mut padded = [0; ID_SIZE];
        for (to, from) in padded.iter_mut().zip(id.bytes()) {
            *to = from;
        }
        let (sectors, name) = (size / SECTOR_SIZE, id.to_owned());
        Ok(Self {
            file,
            sectors,
            readonly,
            sparse: true,
            id: padded,
            write_through: true,
            name,
            complaints: Complaints::default(),
            limiter: Limiter::default(),
            counters: Arc::default(),
        })
    }

    /// The same, called `name` in messages.
    #[must_use]
    pub fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// The same, whose file keeps its room unless `sparse`.
    #[must_use]
    pub fn sparse(self, sparse: bool) -> Self {
        Self { sparse, ..self }
    }

    /// The same, which does no more than `limiter` lets it, and counts by `counters`.
    #[must_use]
    pub fn observed(self, limiter: Limiter, counters: Arc<DiskCounters>) -> Self {
        Self { limiter, counters, ..self }
    }

    /// A request has failed. What the host is to blame for is said to whoever runs it, now and then; the guest hears of all.
    fn complain(&mut self, error: &RequestError) {
        let Some(host) = error.host() else {
            tracing::debug!(error = error as &dyn std::error::Error, "disk request fails");
            return;
        };
        if let Some(count) = self.complaints.count() {
            tracing::warn!("disk {}: the host fails {count} request(s) with: {host}", self.name);
        }
    }

    /// Does the request and returns how many bytes of data it wrote to guest memory.
    fn execute(&mut self, memory: &GuestMemory, request: &Request) -> Result<u32, RequestError> {
        if !request.is_well_formed() {
            return Err(RequestError::Malformed);
        }
        let (kind, sector) = header(memory, request)?;
        let bytes = moved(kind, request);
        // Whatever becomes of it: a request that fails has cost as much.
        self.limiter.pay(bytes);
        // The last writable byte is the status; the caller saw that it is there.
        let room = length(&request.writable).saturating_sub(1);
        match kind {
            VIRTIO_BLK_T_IN => {
                self.seek(sector, room)?;
                for segment in cut(&request.writable, 0..room) {
                    self.read(memory, segment)?;
                }
                self.counters.read(room);
                u32::try_from(room).map_err(|_| RequestError::Range { sector, bytes: room })
            }
            VIRTIO_BLK_T_OUT => {
                self.write_all(memory, request, sector)?;
                self.counters.written(bytes);
                Ok(0)
            }
            VIRTIO_BLK_T_DISCARD if self.sparse => self.erase(memory, request, Erase::Discard).map(|()| 0),
            VIRTIO_BLK_T_WRITE_ZEROES => self.erase(memory, request, Erase::Zeroes).map(|()| 0),
            VIRTIO_BLK_T_FLUSH => self.flush().map(|()| 0),
            VIRTIO_BLK_T_GET_ID => {
                let count = usize::try_from(room).unwrap_or(ID_SIZE).min(ID_SIZE);
                let id = self.id.get(..count).unwrap_or_default();
                Ok(u32::try_from(scatter(memory, &request.writable, 0, id)?).unwrap_or(0))
            }
            other => Err(RequestError::Unsupported(other)),
        }
    }

    fn write_all(&mut self, memory: &GuestMemory, request: &Request, sector: u64) -> Result<(), RequestError> {
        if self.readonly {
            return Err(RequestError::ReadOnly);
        }
        let data = HEADER_SIZE as u64..length(&request.readable);
        let bytes = data.end - data.start;
        self.seek(sector, bytes)?;
        for segment in cut(&request.readable, data) {
            self.write(memory, segment)?;
        }
        if self.write_through { self.flush() } else { Ok(()) }
    }

    /// Erases the ranges that are the data of `request`: all of them, or none that is wrong.
    fn erase(&mut self, memory: &GuestMemory, request: &Request, erase: Erase) -> Result<(), RequestError> {
        if self.readonly {
            return Err(RequestError::ReadOnly);
        }
        let ranges = ranges(memory, request, erase)?;
        for range in &ranges {
            let Range { sector, sectors, .. } = *range;
            if !range.is_known(erase) {
                return Err(RequestError::Flags);
            }
            if !range.fits(erase, self.sectors) {
                return Err(RequestError::Range { sector, bytes: u64::from(sectors) * SECTOR_SIZE });
            }
        }
        for range in ranges {
            if erase == Erase::Zeroes {
                // As if they had come from the guest.
                self.limiter.pay_more(u64::from(range.sectors) * SECTOR_SIZE);
            }
            range.erase(erase, &self.file, self.sparse)?;
        }
        if self.write_through { self.flush() } else { Ok(()) }
    }

    /// Goes to `sector`, from which `bytes` are to be transferred.
    fn seek(&mut self, sector: u64, bytes: u64) -> Result<(), RequestError> {
        let on_disk = sector.checked_add(bytes.div_ceil(SECTOR_SIZE)).is_some_and(|end| end <= self.sectors);
        if !on_disk || bytes > TRANSFER_MAX {
            return Err(RequestError::Range { sector, bytes });
        }
        if !bytes.is_multiple_of(SECTOR_SIZE) {
            return Err(RequestError::Malformed);
        }
        // No overflow: the sector is on the disk, whose size in bytes is a u64.
        self.file.seek(SeekFrom::Start(sector * SECTOR_SIZE))?;
        Ok(())
    }

    fn read(&mut self, memory: &GuestMemory, segment: Segment) -> Result<(), RequestError> {
        for slice in memory.get_slices(segment.address, segment.length as usize, Permissions::Write)? {
            self.file.read_exact_volatile(&mut slice?)?;
        }
        Ok(())
    }

    fn write(&mut self, memory: &GuestMemory, segment: Segment) -> Result<(), RequestError> {
        for slice in memory.get_slices(segment.address, segment.length as usize, Permissions::Read)? {
            self.file.write_all_volatile(&slice?)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RequestError> {
        if !self.readonly {
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Bytes of data that a request of type `kind` wants to move, which is no more than one request may.
fn moved(kind: u32, request: &Request) -> u64 {
    let bytes = match kind {
        VIRTIO_BLK_T_IN => length(&request.writable).saturating_sub(1),
        VIRTIO_BLK_T_OUT => length(&request.readable).saturating_sub(HEADER_SIZE as u64),
        _ => 0,
    };
    bytes.min(TRANSFER_MAX)
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
        let always = [VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_FLUSH];
        let erases = [(VIRTIO_BLK_F_DISCARD, self.sparse), (VIRTIO_BLK_F_WRITE_ZEROES, true)];
        let erases = erases.iter().filter(|(_, has)| *has && !self.readonly).map(|(bit, _)| bit);
        let read_only = u64::from(self.readonly) << VIRTIO_BLK_F_RO;
        always.iter().chain(erases).fold(read_only, |features, bit| features | 1 << bit)
    }

    fn config(&self) -> ConfigSpace {
        // `struct virtio_blk_config`: geometry, topology, write back and several queues are not offered.
        let (geometry, topology, queues) = (0, [0; 2], 0);
        let alignment = 1;
        let mut config = self.sectors.to_le_bytes().to_vec();
        for field in [
            [SEGMENT_SIZE_MAX, SEGMENTS_MAX, geometry, BLOCK_SIZE].as_slice(),
            &topology,
            &[queues, DISCARD_SECTORS_MAX, DISCARD_RANGES_MAX, alignment, ZEROES_SECTORS_MAX, 1],
            // What is zero need not stay where it is; then padding.
            &[self.sparse.into()],
        ]
        .concat()
        {
            config.extend(field.to_le_bytes());
        }
        config.into()
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE]
    }

    fn activate(&mut self, features: u64) {
        self.write_through = features & (1 << VIRTIO_BLK_F_FLUSH) == 0;
    }

    fn reset(&mut self) {
        self.write_through = true;
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        let wait = self.limiter.wait(Instant::now());
        if wait.is_zero() {
            return Ready::Now;
        }
        self.counters.throttled.fetch_add(1, Ordering::Relaxed);
        Ready::In(wait)
    }

    fn handle(&mut self, _queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        let Some(status_address) = status_address(request) else { return 0 };
        let (status, data) = match self.execute(memory, request) {
            Ok(data) => (VIRTIO_BLK_S_OK, data),
            Err(error) => {
                self.counters.errors.fetch_add(1, Ordering::Relaxed);
                self.complain(&error);
                (error.status(), 0)
            }
        };
        let [status, ..] = status.to_le_bytes();
        match memory.write_obj(status, status_address) {
            Ok(()) => data + 1,
            Err(_) => 0,
        }
    }
}
