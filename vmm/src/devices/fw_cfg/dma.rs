// SPDX-License-Identifier: Apache-2.0
//! A transfer by DMA: `struct FWCfgDmaAccess`, 16 big-endian bytes of the guest's choice, anywhere.

use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use super::content::Content;
use crate::bits::{index, low16};
use crate::memory::{GpaRange, GuestMemory};

/// Bits of the control field. The device clears all, but `ERROR` if it failed.
const ERROR: u32 = 1 << 0;
const READ: u32 = 1 << 1;
const SKIP: u32 = 1 << 2;
const SELECT: u32 = 1 << 3;
const WRITE: u32 = 1 << 4;
/// Where the key is that `SELECT` is about.
const KEY_SHIFT: u32 = 16;

/// What is behind an item's end, as far as it is read. It is no use to read on where nothing is, but a few KiB of
/// padding are no mistake; without a bound, one small request would clear 4 GiB and back them with host memory. More is an
/// error, and so no request costs more than its item and this.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// What the guest wants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    control: u32,
    length: u32,
    address: u64,
}

impl Transfer {
    /// Reads it from `address`; `None` where there is no memory.
    pub(super) fn fetch(memory: &GuestMemory, address: u64) -> Option<Self> {
        let words = memory.read_obj::<[u32; 4]>(GuestAddress(address)).ok()?;
        let [control, length, high, low] = words.map(u32::from_be);
        Some(Self { control, length, address: u64::from(high) << 32 | u64::from(low) })
    }

    fn has(self, bit: u32) -> bool {
        self.control & bit != 0
    }

    /// The key to select first, if any.
    pub(super) fn select(self) -> Option<u16> {
        self.has(SELECT).then(|| low16(u64::from(self.control >> KEY_SHIFT)))
    }

    /// Does the one operation that counts (reading before writing before skipping) on `content`, from `offset` on, and returns
    /// the offset behind it; `None` if that is impossible, and then nothing is done.
    pub(super) fn run(self, memory: &GuestMemory, content: Option<&Content>, offset: u64) -> Option<u64> {
        let length = u64::from(self.length);
        let left = content.map_or(0, |content| content.length().saturating_sub(offset));
        let within = length.min(left);
        if self.has(READ) {
            let target = self.target(memory)?;
            let end = target.start() + within;
            let zeroes = ZEROES.get(..index(target.end() - end))?;
            if let Some(content) = content {
                content.copy(offset, memory, GpaRange::new(target.start(), end)).ok()?;
            }
            memory.write_slice(zeroes, GuestAddress(end)).ok()?;
        } else if self.has(WRITE) {
            // Of nothing, it is no error.
            return (length == 0).then_some(offset);
        } else if !self.has(SKIP) {
            return Some(offset);
        }
        Some(offset + within)
    }

    /// Where the bytes go; all of it is guest memory.
    fn target(self, memory: &GuestMemory) -> Option<GpaRange> {
        let end = self.address.checked_add(self.length.into())?;
        let there = memory.check_range(GuestAddress(self.address), index(self.length.into()));
        there.then(|| GpaRange::new(self.address, end))
    }
}

/// Tells the guest that the transfer at `address` is over, and whether it is `done`.
pub(super) fn answer(memory: &GuestMemory, address: u64, done: bool) {
    let control: u32 = if done { 0 } else { ERROR };
    // Where there is no memory there is nobody to tell.
    let _ = memory.write_obj(control.to_be_bytes(), GuestAddress(address));
}
