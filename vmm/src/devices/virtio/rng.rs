// SPDX-License-Identifier: Apache-2.0
//! virtio entropy device (virtio 1.2, section 5.4).

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use virtio_bindings::virtio_ids::VIRTIO_ID_RNG;
use vm_memory::bitmap::BitmapSlice;
use vm_memory::{GuestMemory as _, Permissions, ReadVolatile, VolatileSlice};

use super::limit::Limiter;
use super::{Ready, Request, Segment, VirtioDevice, cut};
use crate::complaints::Complaints;
use crate::memory::GuestMemory;
use crate::observe::devices::RngCounters;

const QUEUE_SIZE: u16 = 64;
/// Most bytes that one request gets; a driver asks again for more.
const BYTES_PER_REQUEST: u64 = 64 << 10;

/// Random bytes for the guest.
#[derive(Debug)]
pub struct Rng {
    source: File,
    limiter: Limiter,
    counters: Arc<RngCounters>,
    complaints: Complaints,
}

impl Rng {
    /// Takes bytes from `source`, usually `/dev/urandom`, as many as `limiter` allows. The guest waits while it blocks.
    #[must_use]
    pub fn new(source: File, limiter: Limiter) -> Self {
        Self { source, limiter, counters: Arc::default(), complaints: Complaints::default() }
    }

    /// What it counts by.
    #[must_use]
    pub fn counters(&self) -> Arc<RngCounters> {
        Arc::clone(&self.counters)
    }

    /// Fills `segment` as far as memory and source reach; returns how far, and whether that is all of it.
    fn fill(&mut self, memory: &GuestMemory, segment: Segment) -> (u32, bool) {
        let mut filled = 0;
        let Ok(slices) = memory.get_slices(segment.address, segment.length as usize, Permissions::Write) else {
            return (0, false);
        };
        for slice in slices {
            let Ok(mut slice) = slice else { return (filled, false) };
            let count = match read_some(&mut self.source, &mut slice) {
                Ok(count) => count,
                Err(error) => {
                    self.complain(&error.to_string());
                    return (filled, false);
                }
            };
            // At most the segment's length, which is a u32.
            filled += u32::try_from(count).unwrap_or(0);
            if count < slice.len() {
                self.complain("it has ended");
                return (filled, false);
            }
        }
        (filled, true)
    }

    fn complain(&mut self, why: &str) {
        if let Some(count) = self.complaints.count() {
            tracing::warn!("rng: {count} request(s) got less than they asked for: its source: {why}");
        }
    }
}

/// Reads until `slice` is full or the source has no more.
fn read_some<B: BitmapSlice>(
    source: &mut File,
    slice: &mut VolatileSlice<'_, B>,
) -> Result<usize, vm_memory::VolatileMemoryError> {
    let mut count = 0;
    while count < slice.len() {
        match source.read_volatile(&mut slice.offset(count)?) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(_) if count > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

impl VirtioDevice for Rng {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_RNG
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE]
    }

    fn ready(&mut self, _queue: usize) -> Ready {
        let wait = self.limiter.wait(Instant::now());
        if wait.is_zero() {
            return Ready::Now;
        }
        self.counters.throttled();
        Ready::In(wait)
    }

    fn handle(&mut self, _queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        if !request.is_well_formed() {
            self.limiter.pay(0);
            return 0;
        }
        let (mut written, mut short) = (0, false);
        for segment in cut(&request.writable, 0..BYTES_PER_REQUEST) {
            let (count, all) = self.fill(memory, segment);
            written += count;
            short = !all;
            if short {
                break;
            }
        }
        // Whatever came of it: a request that is refused has cost as much.
        self.limiter.pay(written.into());
        self.counters.given(written.into(), short);
        written
    }
}
