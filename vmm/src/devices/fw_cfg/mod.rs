// SPDX-License-Identifier: Apache-2.0
//! `fw_cfg`: firmware selects an item by its key and reads it, byte by byte or by DMA (QEMU, `docs/specs/fw_cfg.rst`).
//!
//! All items are read-only and there before the guest runs.

mod content;
mod dma;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod fetcher;
mod items;
#[cfg(test)]
mod tests;

use std::fmt;

pub use content::Content;
pub use items::{FileName, Items, key};

use super::bus::{BusDevice, GuestRequest};
use super::running::{Running, WorkerError};
use crate::memory::GuestMemory;
use dma::Transfer;
use fetcher::Fetcher;

/// Selector register: 16 bits, little-endian, write-only.
const SELECTOR: u64 = 0;
/// Data register: bytes of the selected item, one after another; string instructions read many.
const DATA: u64 = 1;
/// DMA address register: 64 bits, big-endian, written as two halves, of which the low one starts the transfer.
const DMA_HIGH: u64 = 4;
const DMA_LOW: u64 = 8;
const DMA_END: u64 = 12;

/// What the DMA address register reads as.
const DMA_SIGNATURE: [u8; 8] = *b"QEMU CFG";
/// Bit of the selector that older machines took for a wish to write.
const KEY_WRITE: u16 = 1 << 14;

/// The device: 12 I/O ports. [`insert_stream`](super::Bus::insert_stream) puts it on a bus.
pub struct FwCfg {
    items: Items,
    memory: GuestMemory,
    selected: u16,
    /// How far in the selected item the next byte is; at most its length.
    offset: u64,
    dma_address: u64,
    fetcher: Fetcher,
    /// Whether it has complained.
    warned: bool,
}

impl fmt::Debug for FwCfg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FwCfg").field("selected", &self.selected).field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl FwCfg {
    /// A device with `items`, whose transfers go to `memory`.
    #[must_use]
    pub fn new(items: Items, memory: GuestMemory) -> Self {
        let (selected, fetcher) = (key::SIGNATURE, Fetcher::default());
        Self { items, memory, selected, offset: 0, dma_address: 0, fetcher, warned: false }
    }

    /// Starts the thread that reads files, if there are any among the items: without it, nothing is read. The first that the
    /// thread does is `begin`, whose result it keeps as long as it runs; without one it ends. It runs as long as what is
    /// returned is there.
    pub fn start<G>(
        &mut self,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Option<Running>, WorkerError> {
        self.items.has_files().then(|| self.fetcher.start(&self.memory, begin)).transpose()
    }

    fn select(&mut self, key: u16) {
        self.selected = key & !KEY_WRITE;
        self.offset = 0;
    }

    /// The next bytes of the selected item, zeroes behind its end.
    fn read_data(&mut self, data: &mut [u8]) {
        data.fill(0);
        if let Some(content) = self.items.get(self.selected) {
            if !content.read(self.offset, data) && !std::mem::replace(&mut self.warned, true) {
                tracing::warn!("firmware reads a file byte by byte and gets zeroes: files come by DMA only");
            }
            self.offset = content.length().min(self.offset + data.len() as u64);
        }
    }

    /// Does what the structure at the DMA address says, and writes there how that went, now or when a file has been read.
    fn transfer(&mut self) {
        let address = std::mem::take(&mut self.dma_address);
        let progress = Transfer::fetch(&self.memory, address).and_then(|transfer| {
            if let Some(key) = transfer.select() {
                self.select(key);
            }
            transfer.run(&self.memory, self.items.get(self.selected), self.offset)
        });
        let Some(progress) = progress else { return dma::answer(&self.memory, address, false) };
        match progress.fetch.map(|fetch| self.fetcher.begin(fetch, address)) {
            // It is answered when the file has been read.
            Some(true) => self.offset = progress.offset,
            Some(false) => dma::answer(&self.memory, address, false),
            None => {
                self.offset = progress.offset;
                dma::answer(&self.memory, address, true);
            }
        }
    }

    /// Whether a file is being read.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.fetcher.is_busy()
    }
}

impl BusDevice for FwCfg {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        match offset {
            DATA => self.read_data(data),
            DMA_HIGH..DMA_END => {
                let signature = DMA_SIGNATURE.iter().skip((offset - DMA_HIGH).to_le_bytes()[0].into()).copied();
                data.iter_mut().zip(signature.chain(std::iter::repeat(0xff))).for_each(|(to, from)| *to = from);
            }
            _ => data.fill(0xff),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
        match (offset, data) {
            (SELECTOR, &[low, high]) => self.select(u16::from_le_bytes([low, high])),
            (DMA_HIGH, &[a, b, c, d]) => self.dma_address = u64::from(u32::from_be_bytes([a, b, c, d])) << 32,
            (DMA_LOW, &[a, b, c, d]) => {
                self.dma_address |= u64::from(u32::from_be_bytes([a, b, c, d]));
                self.transfer();
            }
            // The data register takes nothing: there is nothing to write to.
            _ => {}
        }
        None
    }
}
