// SPDX-License-Identifier: Apache-2.0
//! `fw_cfg`: firmware selects an item by its key and reads it, byte by byte or by DMA (QEMU, `docs/specs/fw_cfg.rst`).
//!
//! All items are read-only and there before the guest runs.

mod content;
mod dma;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod items;
#[cfg(test)]
mod tests;

use std::fmt;

pub use content::Content;
pub use items::{FileName, Items, key};

use super::bus::{BusDevice, GuestRequest};
use crate::memory::GuestMemory;
use dma::Transfer;

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
        Self { items, memory, selected: key::SIGNATURE, offset: 0, dma_address: 0 }
    }

    fn select(&mut self, key: u16) {
        self.selected = key & !KEY_WRITE;
        self.offset = 0;
    }

    /// The next bytes of the selected item, zeroes behind its end.
    fn read_data(&mut self, data: &mut [u8]) {
        data.fill(0);
        if let Some(content) = self.items.get(self.selected) {
            content.read(self.offset, data);
            self.offset = content.length().min(self.offset + data.len() as u64);
        }
    }

    /// Does what the structure at the DMA address says, and writes there how that went.
    fn transfer(&mut self) {
        let address = std::mem::take(&mut self.dma_address);
        let done = Transfer::fetch(&self.memory, address).and_then(|transfer| {
            if let Some(key) = transfer.select() {
                self.select(key);
            }
            let content = self.items.get(self.selected);
            self.offset = transfer.run(&self.memory, content, self.offset)?;
            Some(())
        });
        dma::answer(&self.memory, address, done.is_some());
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
