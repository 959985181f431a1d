// SPDX-License-Identifier: Apache-2.0
//! A transfer by DMA: `struct FWCfgDmaAccess`, 16 big-endian bytes of the guest's choice, anywhere.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

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

/// So much of a file is read at once: a pause, or the end of the VM, waits for no more.
pub(super) const PIECE: u64 = 1 << 20;

/// As many zeroes as are to go to `padding`.
fn zeroes(padding: GpaRange) -> Option<&'static [u8]> {
    ZEROES.get(..index(padding.length()))
}

/// How far a transfer is.
#[derive(Debug)]
pub(super) struct Progress {
    /// The offset in the selected item behind it.
    pub(super) offset: u64,
    /// What is still to be done, and takes as long as a disk does.
    pub(super) fetch: Option<Fetch>,
}

/// A part of a file that is to go to guest memory, and zeroes behind it.
#[derive(Debug)]
pub(super) struct Fetch {
    file: Arc<File>,
    position: u64,
    target: GpaRange,
    padding: GpaRange,
}

impl Fetch {
    /// Does a piece of it, the zeroes with the last one. True when that was all. May wait for a disk.
    pub(super) fn step(&mut self, memory: &GuestMemory) -> io::Result<bool> {
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.position))?;
        let now = self.target.length().min(PIECE);
        let target = GuestAddress(self.target.start());
        memory.read_exact_volatile_from(target, &mut file, index(now)).map_err(io::Error::other)?;
        self.position += now;
        self.target = GpaRange::new(self.target.start() + now, self.target.end());
        if self.target.length() > 0 {
            return Ok(false);
        }
        let zeroes = zeroes(self.padding).unwrap_or_default();
        memory.write_slice(zeroes, GuestAddress(self.padding.start())).map_err(io::Error::other)?;
        Ok(true)
    }
}

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

    /// Does the one operation that counts (reading before writing before skipping) on `content`, from `offset` on, or says what
    /// is still to be fetched for it; `None` if that is impossible, and then nothing is done.
    pub(super) fn run(self, memory: &GuestMemory, content: Option<&Content>, offset: u64) -> Option<Progress> {
        let length = u64::from(self.length);
        let left = content.map_or(0, |content| content.length().saturating_sub(offset));
        let within = length.min(left);
        if self.has(READ) {
            let target = self.target(memory)?;
            let end = target.start() + within;
            let padding = GpaRange::new(end, target.end());
            zeroes(padding)?;
            let target = GpaRange::new(target.start(), end);
            if let Some(Content::File { file, start, .. }) = content {
                let fetch = Fetch { file: Arc::clone(file), position: start + offset, target, padding };
                return Some(Progress { offset: offset + within, fetch: Some(fetch) });
            }
            if let Some(Content::Bytes(bytes)) = content {
                let from = bytes.get(index(offset)..)?.get(..index(within))?;
                memory.write_slice(from, GuestAddress(target.start())).ok()?;
            }
            memory.write_slice(zeroes(padding)?, GuestAddress(end)).ok()?;
        } else if self.has(WRITE) {
            // Of nothing, it is no error.
            return (length == 0).then_some(Progress { offset, fetch: None });
        } else if !self.has(SKIP) {
            return Some(Progress { offset, fetch: None });
        }
        Some(Progress { offset: offset + within, fetch: None })
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
    // Whoever sees this sees what was transferred, too.
    fence(Ordering::Release);
    // Where there is no memory there is nobody to tell.
    let _ = memory.write_obj(control.to_be_bytes(), GuestAddress(address));
}
