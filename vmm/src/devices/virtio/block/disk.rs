// SPDX-License-Identifier: Apache-2.0
//! What a disk is: its file, what the driver is told of it, and what holds for all of its requests.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::ioctl_blkpbszget;
use rustix::process::{Resource, getrlimit};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES,
};

use super::direct::Alignment;
use super::erase::{DISCARD_RANGES_MAX, DISCARD_SECTORS_MAX, ZEROES_SECTORS_MAX};
use super::error::{BlockError, RequestError};
use super::lost::Lost;
use super::{SECTOR_SIZE, low32};
use crate::devices::virtio::limit::Limiter;
use crate::devices::virtio::vectors::Direction;
use crate::devices::virtio::{ConfigSpace, ResizeError};
use crate::observe::devices::DiskCounters;

/// Bytes of a serial number.
pub(super) const ID_SIZE: usize = VIRTIO_BLK_ID_BYTES as usize;
/// Most data segments of a request, however large the queue: with the length of each they bound its work.
const SEGMENTS_MAX: u16 = 126;
/// Longest data segment, in bytes. FreeBSD has no disk where it is less than its `maxphys`, which is this.
const SEGMENT_SIZE_MAX: u32 = 1 << 20;
/// What a driver that keeps to both limits can ask for at once, in bytes.
const TRANSFER_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_SIZE_MAX as u64;
/// The same of a driver that has not accepted them, and so knows of neither: EDK2's asks for no more.
const TRANSFER_MAX_UNTOLD: u64 = 1 << 30;
/// Bytes of lists of pieces that a disk's requests may have, all queues together. A driver that keeps to the limits above does not
/// meet it with any queue but the largest ones.
const LISTS_MAX: usize = 16 << 20;
/// Larger pieces than this are nothing that a driver should know of: 1 MiB.
const PHYSICAL_SIZE_MAX: u32 = 1 << 20;
/// Where `struct virtio_blk_config` has its topology: what the host's blocks are.
pub(super) const TOPOLOGY: Range<usize> = 24..32;

/// What the owner of a disk says of it.
#[derive(Debug)]
pub struct Settings {
    /// It is never written.
    pub readonly: bool,
    /// What its file wants, if nothing is to go by the host's page cache; it is open for that.
    pub direct: Option<Alignment>,
    /// What the guest does not need, or wants to be zero, needs no room in the file.
    pub sparse: bool,
    /// The serial number that the guest sees, cut to 20 bytes.
    pub serial: String,
    /// What it is called in messages.
    pub name: String,
    /// Descriptors in each queue, a power of two, at least 4.
    pub queue_size: u16,
    /// Queues, each with a thread of its own; at least 1.
    pub num_queues: u16,
    /// Several requests are done at once, if the host lets this process do that.
    pub io_uring: bool,
    /// How many bytes of this process may go for where those requests' data is, but for one of each queue.
    pub lists_max: usize,
    /// What is kept open as long as the disk is there, and closed with it: the kernel is done with `io_uring` and its file later.
    pub lock: Option<File>,
    /// Whether something that was written is lost, which others may find, too.
    pub lost: Lost,
    /// It does no more than this lets it,
    pub limiter: Limiter,
    /// and counts by these.
    pub counters: Arc<DiskCounters>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            readonly: false,
            direct: None,
            sparse: true,
            serial: String::new(),
            name: String::new(),
            queue_size: 128,
            num_queues: 1,
            io_uring: true,
            lists_max: LISTS_MAX,
            lock: None,
            lost: Lost::default(),
            limiter: Limiter::default(),
            counters: Arc::default(),
        }
    }
}

/// A disk, whoever does its requests.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "its owner says each by itself")]
pub(super) struct Disk {
    pub(super) file: File,
    _lock: Option<File>,
    sectors: AtomicU64,
    pub(super) lost: Lost,
    /// In bytes: what the file is read and written in without loss.
    physical_size: u32,
    /// This process's limit of a file's size; asked for here, because the disk's thread may not.
    most_bytes: Option<u64>,
    /// It is a block device, whose size others set.
    is_device: bool,
    pub(super) readonly: bool,
    pub(super) direct: Option<Alignment>,
    pub(super) sparse: bool,
    pub(super) id: [u8; ID_SIZE],
    pub(super) name: String,
    pub(super) queue_size: u16,
    num_queues: u16,
    pub(super) io_uring: bool,
    lists_max: usize,
    pub(super) limiter: Mutex<Limiter>,
    pub(super) counters: Arc<DiskCounters>,
    pub(super) space: ConfigSpace,
}

impl Disk {
    pub(super) fn new(mut file: File, settings: Settings) -> Result<Self, BlockError> {
        // Seeking finds the size of block devices too.
        let size = file.seek(SeekFrom::End(0)).map_err(BlockError::Size)?;
        match (size, size % SECTOR_SIZE) {
            (0, _) => return Err(BlockError::Empty),
            (_, 0) => {}
            _ => return Err(BlockError::Ragged(size)),
        }
        let Settings {
            readonly,
            direct,
            sparse,
            serial,
            name,
            queue_size,
            num_queues,
            io_uring,
            lists_max,
            lock,
            lost,
            limiter,
            counters,
        } = settings;
        let mut id = [0; ID_SIZE];
        for (to, from) in id.iter_mut().zip(serial.bytes()) {
            *to = from;
        }
        let (physical_size, is_device) = kind(&file);
        let mut disk = Self {
            space: ConfigSpace::default(),
            physical_size,
            most_bytes: getrlimit(Resource::Fsize).current,
            is_device,
            file,
            _lock: lock,
            sectors: AtomicU64::new(size / SECTOR_SIZE),
            lost,
            readonly,
            direct,
            sparse,
            id,
            name,
            queue_size,
            num_queues,
            io_uring,
            lists_max,
            limiter: Mutex::new(limiter),
            counters,
        };
        disk.space = disk.config().into();
        Ok(disk)
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Acquire)
    }

    /// It has `size` bytes from now on, and is never smaller. Its file gets more if it has not so many, and is never cut; nor is part
    /// of it left out, which would be there after the next start or restore.
    pub(super) fn resize(&self, size: u64) -> Result<(), ResizeError> {
        let multiple = u64::from(self.block_size());
        if !size.is_multiple_of(multiple) {
            return Err(ResizeError::Ragged { size, multiple });
        }
        let host = |source| ResizeError::Host { size, source };
        let most = (&self.file).seek(SeekFrom::End(0)).map_err(host)?;
        // What is not a whole block at the end of a file that cannot grow is nobody's.
        let whole = if self.readonly || self.is_device { most - most % multiple } else { most };
        let least = whole.max(self.sectors() * SECTOR_SIZE);
        if size < least {
            return Err(ResizeError::Smaller { size, least });
        }
        if size > most && (self.readonly || self.is_device) {
            return Err(ResizeError::Fixed { size, most });
        }
        if size > most {
            // More than that is answered by SIGXFSZ.
            if self.most_bytes.is_some_and(|limit| size > limit) {
                return Err(host(io::Error::from_raw_os_error(libc::EFBIG)));
            }
            self.file.set_len(size).map_err(host)?;
        }
        self.sectors.store(size / SECTOR_SIZE, Ordering::Release);
        // The driver hears of it once all of it can be read.
        self.space.change(0, &self.config());
        Ok(())
    }

    /// What the driver is to take for a block, in bytes: whatever it asks for is whole ones.
    fn block_size(&self) -> u32 {
        self.direct.map_or(low32(SECTOR_SIZE), |alignment| alignment.offset)
    }

    /// Where in the file `sector` is, from which `bytes` are to be transferred, at `most` so many at once.
    pub(super) fn place(&self, sector: u64, bytes: u64, most: u64) -> Result<u64, RequestError> {
        let on_disk = sector.checked_add(bytes.div_ceil(SECTOR_SIZE)).is_some_and(|end| end <= self.sectors());
        if !on_disk || bytes > most {
            return Err(RequestError::Range { sector, bytes });
        }
        // No overflow: the sector is on the disk, whose size in bytes is a u64.
        let offset = sector * SECTOR_SIZE;
        if (offset | bytes).is_multiple_of(self.block_size().into()) {
            Ok(offset)
        } else {
            Err(RequestError::Malformed)
        }
    }

    /// What was written is safe when this returns.
    pub(super) fn flush(&self) -> Result<(), RequestError> {
        if self.readonly { Ok(()) } else { Ok(self.lost.flushed(self.file.sync_data())?) }
    }

    /// So many `bytes` of data were moved. How many of them were written to guest memory.
    pub(super) fn count(&self, direction: Direction, bytes: u64) -> u32 {
        match direction {
            Direction::Read => {
                self.counters.read(bytes);
                // No more than a request may have.
                u32::try_from(bytes).unwrap_or(0)
            }
            Direction::Write => {
                self.counters.written(bytes);
                0
            }
        }
    }

    /// What of the lists' bytes is one queue's.
    pub(super) fn lists_each(&self) -> usize {
        self.lists_max / usize::from(self.num_queues.max(1))
    }

    pub(super) fn features(&self) -> u64 {
        let always = [
            VIRTIO_BLK_F_SIZE_MAX,
            VIRTIO_BLK_F_SEG_MAX,
            VIRTIO_BLK_F_BLK_SIZE,
            VIRTIO_BLK_F_FLUSH,
            VIRTIO_BLK_F_TOPOLOGY,
        ];
        let erases = [(VIRTIO_BLK_F_DISCARD, self.sparse), (VIRTIO_BLK_F_WRITE_ZEROES, true)];
        let erases = erases.iter().filter(|(_, has)| *has && !self.readonly).map(|(bit, _)| bit);
        let read_only = u64::from(self.readonly) << VIRTIO_BLK_F_RO;
        let several = u64::from(self.num_queues > 1) << VIRTIO_BLK_F_MQ;
        always.iter().chain(erases).fold(read_only | several, |features, bit| features | 1 << bit)
    }

    /// `struct virtio_blk_config`. Geometry and write back are not offered, nor is a best size.
    fn config(&self) -> Vec<u8> {
        let (geometry, best, queues) = (0, 0, if self.num_queues > 1 { u32::from(self.num_queues) << 16 } else { 0 });
        let block_size = self.block_size();
        let blocks = (self.physical_size / block_size).max(1);
        // A queue's entries are a header, data and a status byte.
        let segments = SEGMENTS_MAX.min(self.queue_size.saturating_sub(2));
        // Log2 of the blocks that the host has as one, which of them is the first, and the same number as the least that
        // is well done at once.
        let topology = blocks.ilog2() | blocks << 16;
        let alignment = block_size / low32(SECTOR_SIZE);
        let sizes = [SEGMENT_SIZE_MAX, segments.into(), geometry, block_size, topology, best];
        // At the end: what is zero need not stay where it is; then padding.
        let erases = [DISCARD_SECTORS_MAX, DISCARD_RANGES_MAX, alignment, ZEROES_SECTORS_MAX, 1, self.sparse.into()];
        let mut config = self.sectors().to_le_bytes().to_vec();
        config.extend(sizes.into_iter().chain([queues]).chain(erases).flat_map(u32::to_le_bytes));
        config
    }
}

/// Bytes that a request of a driver that has accepted `features` may move: both limits are its if both are accepted (virtio 1.2,
/// section 5.2.3).
pub(super) const fn transfer_max(features: u64) -> u64 {
    const LIMITS: u64 = 1 << VIRTIO_BLK_F_SIZE_MAX | 1 << VIRTIO_BLK_F_SEG_MAX;
    if features & LIMITS == LIMITS { TRANSFER_MAX } else { TRANSFER_MAX_UNTOLD }
}

/// A power of two, at least a sector, that divides what the file is best read and written in; and whether it is a block device.
fn kind(file: &File) -> (u32, bool) {
    let sector = low32(SECTOR_SIZE);
    let Ok(metadata) = file.metadata() else { return (sector, false) };
    let is_device = metadata.file_type().is_block_device();
    let said = if is_device { ioctl_blkpbszget(file).ok() } else { u32::try_from(metadata.blksize()).ok() };
    let said = said.filter(|size| size.is_power_of_two());
    (said.map_or(sector, |size| size.clamp(sector, PHYSICAL_SIZE_MAX)), is_device)
}
