// SPDX-License-Identifier: Apache-2.0
//! A request as a driver put it into a queue: where to read, where to write.

use std::ops::Range;

use virtio_queue::DescriptorChain;
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::memory::GuestMemory;

/// A piece of guest memory that a descriptor names; not known to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its guest physical address.
    pub address: GuestAddress,
    /// Bytes, at least one.
    pub length: u32,
}

/// A descriptor chain, taken apart. How the driver cut it into descriptors has no meaning (virtio 1.2, section 2.7.4).
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What the device may read, in order.
    pub readable: Vec<Segment>,
    /// What the device may write, in order.
    pub writable: Vec<Segment>,
    /// The chain was followed to its end. If not (a loop, too long, a descriptor that is not there), the segments are
    /// only its start.
    pub complete: bool,
    /// All readable segments came before the writable ones, as they must.
    pub ordered: bool,
}

impl Request {
    /// The driver kept the rules of section 2.7 of virtio 1.2.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        self.complete && self.ordered
    }

    /// Bytes that the request names, to read and to write.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        length(&self.readable) + length(&self.writable)
    }

    /// Takes `chain` apart into `self`, which keeps its buffers. Follows at most `limit` descriptors.
    pub(super) fn load(&mut self, chain: DescriptorChain<&GuestMemory>, limit: u16) {
        self.readable.clear();
        self.writable.clear();
        self.complete = false;
        self.ordered = true;
        // The chain's iterator ends in silence at a descriptor that it cannot follow: then the one before has a next.
        for descriptor in chain.take(limit.into()) {
            let segment = Segment { address: descriptor.addr(), length: descriptor.len() };
            if descriptor.is_write_only() {
                self.writable.extend(Some(segment).filter(|s| s.length > 0));
            } else {
                self.ordered &= self.writable.is_empty();
                self.readable.extend(Some(segment).filter(|s| s.length > 0));
            }
            self.complete = !descriptor.has_next();
        }
    }
}

/// Bytes in `segments`. Cannot overflow: there are at most 2^16 of them, each shorter than 2^32.
#[must_use]
pub fn length(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}

/// The pieces of `segments` that hold the bytes of `range`, counted from the start of the first segment.
pub fn cut(segments: &[Segment], range: Range<u64>) -> impl Iterator<Item = Segment> {
    let mut position = 0;
    segments.iter().filter_map(move |segment| {
        let here = position..position + u64::from(segment.length);
        position = here.end;
        let start = range.start.max(here.start);
        let end = range.end.min(here.end);
        let length = u32::try_from(end.checked_sub(start)?).ok().filter(|&length| length > 0)?;
        // Past the end of the address space there is no memory, and none at its last byte either.
        let address = GuestAddress(segment.address.0.saturating_add(start - here.start));
        Some(Segment { address, length })
    })
}

/// Fills `bytes` from `segments`, beginning at byte `start` of them. How many there were.
pub fn gather(
    memory: &GuestMemory,
    segments: &[Segment],
    start: u64,
    bytes: &mut [u8],
) -> Result<usize, GuestMemoryError> {
    let mut done = 0;
    for segment in cut(segments, start..start.saturating_add(bytes.len() as u64)) {
        // No longer than what is left: the range ends where `bytes` do.
        let end = done + segment.length as usize;
        memory.read_slice(bytes.get_mut(done..end).unwrap_or_default(), segment.address)?;
        done = end;
    }
    Ok(done)
}

/// Puts `bytes` into `segments`, beginning at byte `start` of them. How many there was room for.
pub fn scatter(
    memory: &GuestMemory,
    segments: &[Segment],
    start: u64,
    bytes: &[u8],
) -> Result<usize, GuestMemoryError> {
    let mut done = 0;
    for segment in cut(segments, start..start.saturating_add(bytes.len() as u64)) {
        // As above.
        let end = done + segment.length as usize;
        memory.write_slice(bytes.get(done..end).unwrap_or_default(), segment.address)?;
        done = end;
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Cutting bytes one by one or by range gives the same addresses.
        #[test]
        fn cut_names_the_bytes_of_the_range(lengths in prop::collection::vec(1u32..20, 0..8), a in 0u64..100, b in 0u64..100) {
            let segments: Vec<_> = (0..).zip(&lengths)
                .map(|(i, &length)| Segment { address: GuestAddress(i * 1000), length })
                .collect();
            let bytes = |segments: &mut dyn Iterator<Item = Segment>| -> Vec<u64> {
                segments.flat_map(|s| s.address.0..s.address.0 + u64::from(s.length)).collect()
            };
            let all = bytes(&mut segments.iter().copied());
            let range = a.min(b)..a.max(b);
            let expected: Vec<u64> = (0..).zip(all).filter(|(at, _)| range.contains(at)).map(|(_, byte)| byte).collect();
            prop_assert_eq!(bytes(&mut cut(&segments, range)), expected);
        }
    }

    proptest! {
        /// What is scattered over any segments is gathered from them, as far as they go.
        #[test]
        fn what_is_scattered_is_gathered(lengths in prop::collection::vec(1u32..20, 0..8), start in 0u64..60, size in 0usize..100) {
            let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
            let segments: Vec<_> = (0..).zip(&lengths)
                .map(|(i, &length)| Segment { address: GuestAddress(i * 1000), length })
                .collect();
            let bytes: Vec<u8> = (1..=size).map(|at| at.to_le_bytes()[0]).collect();
            let room = usize::try_from(length(&segments).saturating_sub(start)).unwrap().min(size);
            prop_assert_eq!(scatter(&memory, &segments, start, &bytes).unwrap(), room);
            let mut back = vec![0; size];
            prop_assert_eq!(gather(&memory, &segments, start, &mut back).unwrap(), room);
            prop_assert_eq!(&back[..room], &bytes[..room]);
            prop_assert!(back[room..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_segment_past_the_end_of_the_address_space_stays_there() {
        let segments = [Segment { address: GuestAddress(u64::MAX), length: 10 }];
        assert_eq!(cut(&segments, 5..10).collect::<Vec<_>>(), [Segment { address: GuestAddress(u64::MAX), length: 5 }]);
    }
}
