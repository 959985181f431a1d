// SPDX-License-Identifier: Apache-2.0
//! Where kernel and initramfs go.

use super::plan::{MemoryPlan, PlanError};
use super::range::GpaRange;
use super::size::Size;
use crate::layout::{ABOVE_4G, HIGH_MEMORY_START, PAGE_SIZE};

impl MemoryPlan {
    /// Checks that a kernel which takes `kernel` (image, bss and what it needs to decompress itself) is in the low RAM.
    pub fn check_kernel(&self, kernel: GpaRange) -> Result<(), PlanError> {
        let room = self.low_room();
        let memory = Size(self.input().size.bytes());
        if room.contains(kernel) { Ok(()) } else { Err(PlanError::Kernel { kernel, room, memory }) }
    }

    /// Where an initramfs of `size` bytes goes: to the top of the low RAM if the kernel, which ends at `kernel_end`, leaves
    /// room there, else to the start of the RAM above 4 GiB. Page-aligned; never in an arena.
    ///
    /// Whoever writes it there calls [`mark_written`](Self::mark_written).
    pub fn place_initramfs(&self, size: u64, kernel_end: u64) -> Result<GpaRange, PlanError> {
        let low = self.low_room();
        let low = GpaRange::new(kernel_end.clamp(low.start(), low.end()).next_multiple_of(PAGE_SIZE), low.end());
        if size <= low.length() {
            let start = low.end() - size;
            return Ok(GpaRange::of(start - start % PAGE_SIZE, size));
        }

        let high = || self.runs().into_iter().map(|(run, _)| run).filter(|run| run.start() >= ABOVE_4G);
        let high = || high().map(|run| self.below_arenas(run));
        if let Some(room) = high().find(|room| size <= room.length()) {
            return Ok(GpaRange::of(room.start(), size));
        }
        let room = high().chain([low]).map(GpaRange::length).max().unwrap_or(0);
        Err(PlanError::Initramfs { size, room, memory: Size(self.input().size.bytes()) })
    }

    /// The low RAM from 1 MiB up that the VMM may write to.
    fn low_room(&self) -> GpaRange {
        let low_end = self.ram().first().map_or(0, |low| low.end());
        self.below_arenas(GpaRange::new(HIGH_MEMORY_START, low_end))
    }

    /// `range` up to the first arena in it.
    fn below_arenas(&self, range: GpaRange) -> GpaRange {
        let arenas = self.arenas().iter().map(|arena| GpaRange::new(arena.base, arena.end()));
        let end = arenas.filter(|arena| range.contains(*arena)).map(GpaRange::start).min().unwrap_or(range.end());
        GpaRange::new(range.start(), end)
    }
}
