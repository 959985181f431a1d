// SPDX-License-Identifier: Apache-2.0
//! virtio balloon device (virtio 1.2, section 5.5): memory that the guest gives up because it is asked to, or as soon as it is free.
//!
//! Whatever the guest gives up reads as zero afterwards, or, in a VM that was restored, as the snapshot has it; it takes room in the
//! host again when it is written. So a guest can name any memory of its own here, used or not: it loses what was there, and nobody
//! else does. Drivers take nothing there for zero: they are not offered `VIRTIO_BALLOON_F_PAGE_POISON`, by which they could say so.

use std::sync::Arc;

use virtio_bindings::virtio_ids::VIRTIO_ID_BALLOON;
use vm_memory::GuestMemoryError;

use super::{ConfigSpace, Request, VirtioDevice, gather, length};
use crate::complaints::Complaints;
use crate::layout::PAGE_SIZE;
use crate::memory::guest::discard;
use crate::memory::{GpaRange, GuestMemory};
use crate::observe::devices::BalloonCounters;

// virtio 1.2, section 5.5.3; the crate virtio-bindings has none of them.
const VIRTIO_BALLOON_F_DEFLATE_ON_OOM: u32 = 2;
const VIRTIO_BALLOON_F_REPORTING: u32 = 5;

const QUEUE_SIZE: u16 = 128;
/// What the guest gives up because it was asked to.
const INFLATE: usize = 0;
/// What it takes back of that. The third queue is for memory that is free.
const DEFLATE: usize = 1;

/// Most page numbers that one request may have, in bytes; Linux has 256 pages in each.
const NUMBERS_MAX: u64 = 64 << 10;
/// Most memory that one report may name, in bytes: giving back takes time, and a pause waits for it. Linux has 32 blocks of 4 MiB in
/// each.
const REPORT_MAX: u64 = 1 << 30;
/// A page number: 32 bits, in units of 4 KiB whatever pages the guest has.
const NUMBER_SIZE: usize = 4;

/// Where `num_pages` and `actual` are in `struct virtio_balloon_config`, both as page numbers are.
const WANTED: usize = 0;
const ACTUAL: usize = 4;
const CONFIG_SIZE: usize = 8;

/// The host's hand on a balloon.
#[derive(Debug, Clone)]
pub struct BalloonControl(ConfigSpace);

impl BalloonControl {
    /// Asks the guest to give up `bytes` of its memory, all in all. It does so in its own time, or not.
    pub fn ask(&self, bytes: u64) {
        self.0.change(WANTED, &pages(bytes).to_le_bytes());
    }

    /// Bytes that it says it has given up.
    #[must_use]
    pub fn actual(&self) -> u64 {
        u64::from(u32::from_le_bytes(self.0.get(ACTUAL))) * PAGE_SIZE
    }
}

/// `bytes` as the guest counts them; more than it can count are as many as it can.
fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes / PAGE_SIZE).unwrap_or(u32::MAX)
}

/// A balloon.
pub struct Balloon {
    space: ConfigSpace,
    deflates_on_oom: bool,
    reports: bool,
    complaints: Complaints,
    counters: Arc<BalloonCounters>,
    /// Page numbers of the request at hand.
    numbers: Vec<u8>,
}

impl Balloon {
    /// One by which the guest is asked for `bytes`. If `deflates_on_oom`, it takes them back before it ends a program for lack of
    /// memory; if `reports`, it also gives up what is free, and takes that back as it pleases.
    #[must_use]
    pub fn new(bytes: u64, deflates_on_oom: bool, reports: bool) -> Self {
        let mut config = vec![0; CONFIG_SIZE];
        config.splice(WANTED..ACTUAL, pages(bytes).to_le_bytes());
        let space = ConfigSpace::with_writable(config, ACTUAL..CONFIG_SIZE);
        let (complaints, counters) = (Complaints::default(), Arc::default());
        Self { space, deflates_on_oom, reports, complaints, counters, numbers: Vec::new() }
    }

    /// What it is controlled by.
    #[must_use]
    pub fn control(&self) -> BalloonControl {
        BalloonControl(self.space.clone())
    }

    /// What it counts by.
    #[must_use]
    pub fn counters(&self) -> Arc<BalloonCounters> {
        Arc::clone(&self.counters)
    }

    /// The ranges of the pages whose numbers a request has: each as long as neighbours come one after another, up or down.
    fn ranges(&mut self, memory: &GuestMemory, request: &Request) -> Result<Vec<GpaRange>, GuestMemoryError> {
        let bytes = length(&request.readable);
        if bytes > NUMBERS_MAX || !bytes.is_multiple_of(NUMBER_SIZE as u64) {
            self.counters.wrong();
            return Ok(Vec::new());
        }
        self.numbers.resize(usize::try_from(bytes).unwrap_or(0), 0);
        gather(memory, &request.readable, 0, &mut self.numbers)?;
        let (numbers, _) = self.numbers.as_chunks::<NUMBER_SIZE>();
        let pages = numbers.iter().map(|number| u64::from(u32::from_le_bytes(*number)) * PAGE_SIZE);
        let mut ranges: Vec<GpaRange> = Vec::new();
        for page in pages.map(|start| GpaRange::of(start, PAGE_SIZE)) {
            match ranges.last_mut() {
                Some(last) if last.end() == page.start() => *last = GpaRange::new(last.start(), page.end()),
                Some(last) if page.end() == last.start() => *last = GpaRange::new(page.start(), last.end()),
                _ => ranges.push(page),
            }
        }
        Ok(ranges)
    }

    /// Gives `range` back to the host. Bytes of it that are there.
    fn give_back(&mut self, memory: &GuestMemory, range: GpaRange) -> u64 {
        match discard(memory, range) {
            Ok(bytes) => {
                if bytes < range.length() {
                    self.counters.wrong();
                }
                bytes
            }
            Err(error) => {
                self.counters.wrong();
                if let Some(count) = self.complaints.count() {
                    tracing::warn!("balloon: the host fails {count} request(s) with: {error}");
                }
                0
            }
        }
    }

    fn inflate(&mut self, memory: &GuestMemory, request: &Request) {
        match self.ranges(memory, request) {
            Ok(ranges) => {
                for range in ranges {
                    let bytes = self.give_back(memory, range);
                    self.counters.inflated(bytes);
                }
            }
            Err(_) => self.counters.wrong(),
        }
    }

    /// Memory that is taken back is there when it is touched.
    fn deflate(&self, request: &Request) {
        let pages = length(&request.readable) / NUMBER_SIZE as u64;
        self.counters.deflated(pages * PAGE_SIZE);
    }

    fn report(&mut self, memory: &GuestMemory, request: &Request) {
        if length(&request.writable) > REPORT_MAX {
            self.counters.wrong();
            return;
        }
        for segment in &request.writable {
            let (start, end) = (segment.address.0, segment.address.0.saturating_add(segment.length.into()));
            // Whole pages: what else is on the first and the last one may be in use.
            let whole = GpaRange::new(start.div_ceil(PAGE_SIZE).saturating_mul(PAGE_SIZE), end - end % PAGE_SIZE);
            let bytes = self.give_back(memory, whole);
            self.counters.reported(bytes);
        }
    }
}

impl VirtioDevice for Balloon {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_BALLOON
    }

    fn features(&self) -> u64 {
        let features =
            [(VIRTIO_BALLOON_F_DEFLATE_ON_OOM, self.deflates_on_oom), (VIRTIO_BALLOON_F_REPORTING, self.reports)];
        features.iter().filter(|(_, has)| *has).fold(0, |all, (bit, _)| all | 1 << bit)
    }

    fn config(&self) -> ConfigSpace {
        self.space.clone()
    }

    fn queue_sizes(&self) -> &[u16] {
        // The others of the device's queues, for statistics and hints, do not count where their features are not offered.
        if self.reports { &[QUEUE_SIZE; 3] } else { &[QUEUE_SIZE; 2] }
    }

    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        match queue {
            _ if !request.is_well_formed() => self.counters.wrong(),
            INFLATE => self.inflate(memory, request),
            DEFLATE => self.deflate(request),
            _ => self.report(memory, request),
        }
        0
    }
}
