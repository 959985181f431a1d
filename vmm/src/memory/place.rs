// SPDX-License-Identifier: Apache-2.0
//! Where kernel and initramfs go.

use flatboot_handoff::Arena;

use super::error::PlanError;
use super::input::PayloadKind;
use super::range::GpaRange;
use super::size::Size;
use crate::layout::{ABOVE_4G, HIGH_MEMORY_START, PAGE_SIZE};

/// Memory that something is to go to, `size` bytes in all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rooms<'a> {
    pub(super) size: Size,
    /// By node, in the order of addresses; the first begins at 0.
    pub(super) runs: &'a [(GpaRange, u32)],
    pub(super) arenas: &'a [Arena],
}

impl Rooms<'_> {
    /// Where the initramfs of `payload` goes, if it has one that flatboot loads. Its kernel must be in the low RAM.
    pub(super) fn place(self, payload: PayloadKind) -> Result<Option<GpaRange>, PlanError> {
        let PayloadKind::Kernel { image, initramfs } = payload else { return Ok(None) };
        image.map_or(Ok(()), |image| self.check_kernel(image))?;
        initramfs.map(|size| self.place_initramfs(size, image.map_or(0, GpaRange::end))).transpose()
    }

    /// Checks that a kernel which takes `kernel` is in the low RAM.
    fn check_kernel(self, kernel: GpaRange) -> Result<(), PlanError> {
        let room = self.low();
        if room.contains(kernel) { Ok(()) } else { Err(PlanError::Kernel { kernel, room, memory: self.size }) }
    }

    /// Where an initramfs of `size` bytes goes: to the top of the low RAM if the kernel, which ends at `kernel_end`, leaves
    /// room there, else to the start of the RAM above 4 GiB. Page-aligned; never in an arena.
    fn place_initramfs(self, size: u64, kernel_end: u64) -> Result<GpaRange, PlanError> {
        let low = self.low();
        let low = GpaRange::new(kernel_end.clamp(low.start(), low.end()).next_multiple_of(PAGE_SIZE), low.end());
        if size <= low.length() {
            let start = low.end() - size;
            return Ok(GpaRange::of(start - start % PAGE_SIZE, size));
        }

        let high = || self.runs.iter().map(|(run, _)| *run).filter(|run| run.start() >= ABOVE_4G);
        let high = || high().map(|run| self.below_arenas(run));
        if let Some(room) = high().find(|room| size <= room.length()) {
            return Ok(GpaRange::of(room.start(), size));
        }
        let room = high().chain([low]).map(GpaRange::length).max().unwrap_or(0);
        Err(PlanError::Initramfs { size, room, memory: self.size })
    }

    /// The low RAM from 1 MiB up that the VMM may write to.
    fn low(self) -> GpaRange {
        let low = self.runs.iter().map(|(run, _)| *run).take_while(|run| run.start() < ABOVE_4G);
        self.below_arenas(GpaRange::new(HIGH_MEMORY_START, low.last().map_or(0, GpaRange::end)))
    }

    /// `range` up to the first arena in it.
    fn below_arenas(self, range: GpaRange) -> GpaRange {
        let arenas = self.arenas.iter().map(|arena| GpaRange::new(arena.base, arena.end()));
        let end = arenas.filter(|arena| range.contains(*arena)).map(GpaRange::start).min().unwrap_or(range.end());
        GpaRange::new(range.start(), end)
    }
}
