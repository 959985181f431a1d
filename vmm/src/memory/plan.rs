// SPDX-License-Identifier: Apache-2.0
//! The plan of a VM's memory: everything that follows from its size, before anything is mapped.

use flatboot_handoff::{Arena, Region, RegionFlags, TableError, encode, encoded_len};

use super::arenas::arenas;
use super::backing::HostBacking;
use super::choice::SLOT_MAX;
use super::e820::{E820Entry, e820};
use super::error::PlanError;
use super::input::{PayloadKind, PlanInput};
use super::pages::HostPages;
use super::place::Rooms;
use super::range::{AddressWidth, GpaRange};
use super::shape::slots;
use super::size::Size;
use super::zone::{Slot, ram, runs};
use crate::layout::{ABOVE_4G, HIGH_MEMORY_START};

/// A VM's memory: the slots that it is mapped by, what the guest is told of it (e820 map and hand-off), what goes to it before the
/// guest runs, and how the host backs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    input: PlanInput,
    address_width: AddressWidth,
    slots: Vec<Slot>,
    ram: Vec<GpaRange>,
    held: Option<GpaRange>,
    e820: Vec<E820Entry>,
    regions: Vec<Region>,
    arenas: Vec<Arena>,
    kernel: Option<GpaRange>,
    initramfs: Option<GpaRange>,
    backing: HostBacking,
}

impl MemoryPlan {
    /// Plans memory: what the layout keeps below 4 GiB, the rest from 4 GiB up, for a guest that starts with `payload`.
    /// `address_width` is how wide its physical addresses are: what KVM supports, at most what the processor reports.
    pub fn new(input: &PlanInput, payload: PayloadKind, address_width: AddressWidth) -> Result<Self, PlanError> {
        let slots = slots(input, address_width)?;
        let (ram, runs) = (ram(&slots), runs(&slots));
        let mut regions = regions(&runs, input);
        let arenas = if input.study.arenas { arenas(&runs, &regions) } else { Vec::new() };
        let initramfs = Rooms { size: input.size(), runs: &runs, arenas: &arenas }.place(payload)?;
        if let Some(range) = initramfs {
            mark_written(&mut regions, range);
        }
        let kernel = match payload {
            PayloadKind::Kernel { image, .. } => image,
            PayloadKind::Firmware => None,
        };
        let backing = HostBacking::new(input, payload, &slots, &arenas);
        let e820 = e820(&ram);
        let held = held(input, &ram, address_width)?;
        // Behind all others, and only planned: of it nothing else is said.
        regions.extend(held.map(|range| Region {
            base: range.start(),
            length: range.length(),
            node: 0,
            flags: RegionFlags::HELD,
        }));
        let input = input.clone();
        Ok(Self { input, address_width, slots, ram, held, e820, regions, arenas, kernel, initramfs, backing })
    }

    /// What it follows from.
    #[must_use]
    pub const fn input(&self) -> &PlanInput {
        &self.input
    }

    /// How wide the guest's physical addresses are.
    #[must_use]
    pub const fn address_width(&self) -> AddressWidth {
        self.address_width
    }

    /// The KVM memory slots, sorted; each one contiguous mapping in the VMM. The first starts at 0.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The largest of the pages that back it.
    #[must_use]
    pub fn largest_pages(&self) -> HostPages {
        self.slots.iter().map(|slot| slot.backing.pages).max().unwrap_or_default()
    }

    /// RAM, whatever backs it and whatever node it lies on: sorted ranges that do not touch. The first starts at 0.
    #[must_use]
    pub fn ram(&self) -> &[GpaRange] {
        &self.ram
    }

    /// Where memory can come to be while the guest runs. None of it is RAM so far.
    #[must_use]
    pub const fn held(&self) -> Option<GpaRange> {
        self.held
    }

    /// The node that the memory at a guest physical address lies on; the first, if there is no memory.
    #[must_use]
    pub fn node_of(&self, address: u64) -> u32 {
        let holds = |slot: &&Slot| slot.range.contains(GpaRange::of(address, 1));
        self.slots.iter().find(holds).map_or(0, |slot| slot.node)
    }

    /// The e820 map, sorted; at most [`E820_MAX_ENTRIES`](super::E820_MAX_ENTRIES).
    #[must_use]
    pub fn e820(&self) -> &[E820Entry] {
        &self.e820
    }

    /// The hand-off's regions, sorted.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The hand-off's arenas, sorted.
    #[must_use]
    pub fn arenas(&self) -> &[Arena] {
        &self.arenas
    }

    /// The hand-off table, as the guest finds it in its memory.
    pub fn hand_off(&self) -> Result<Vec<u8>, TableError> {
        let mut table = vec![0; encoded_len(self.regions.len(), self.arenas.len())];
        encode(&self.regions, &self.arenas, &mut table)?;
        Ok(table)
    }

    /// What guest memory the kernel takes, if flatboot loads one.
    #[must_use]
    pub const fn kernel(&self) -> Option<GpaRange> {
        self.kernel
    }

    /// Where the initramfs goes, if flatboot loads one.
    #[must_use]
    pub const fn initramfs(&self) -> Option<GpaRange> {
        self.initramfs
    }

    /// What host memory is asked for beforehand.
    #[must_use]
    pub const fn backing(&self) -> &HostBacking {
        &self.backing
    }
}

/// One region for each range of a node's RAM, from 1 MiB up: the kernel itself cuts them into pieces for its threads.
fn regions(runs: &[(GpaRange, u32)], input: &PlanInput) -> Vec<Region> {
    runs.iter()
        .map(|&(range, node)| {
            let base = range.start().max(HIGH_MEMORY_START);
            let length = range.end() - base;
            let mut flags = RegionFlags::empty();
            // Kernel and boot structures are below 4 GiB; what else is written says so through `mark_written`.
            flags.set(RegionFlags::ZEROED, input.study.zeroed && base >= ABOVE_4G);
            Region { base, length, node, flags }
        })
        .collect()
}

/// Where held memory is: above all RAM, from a whole GiB on, so that it can be mapped by the largest pages.
fn held(input: &PlanInput, ram: &[GpaRange], width: AddressWidth) -> Result<Option<GpaRange>, PlanError> {
    const ALIGNMENT: u64 = 1 << 30;
    /// A memory block of the guest's kernel, which is a device of its own, has no held memory: at most so many blocks are to have RAM.
    const BLOCKS: u64 = 32;

    if input.held == 0 {
        return Ok(None);
    }
    let end_of_ram = ram.last().map_or(ABOVE_4G, |range| range.end()).max(ABOVE_4G);
    let start = end_of_ram.next_multiple_of((end_of_ram / BLOCKS).next_power_of_two().max(ALIGNMENT));
    let room = width.end().saturating_sub(start);
    if input.held > room {
        let size = input.size().0;
        let (most, max) = (Size(size.saturating_add(input.held)), Size(size + room));
        return Err(PlanError::TooMuch { most, max, bits: width.bits() });
    }
    if input.held > SLOT_MAX {
        let size = input.size().0;
        let (most, max) = (Size(size.saturating_add(input.held)), Size(size + SLOT_MAX));
        return Err(PlanError::TooMuchMore { most, max });
    }
    Ok(Some(GpaRange::of(start, input.held)))
}

/// Notes that the VMM writes to `range` before the guest runs: no region that shares a byte with it is `ZEROED`.
fn mark_written(regions: &mut [Region], range: GpaRange) {
    for region in regions {
        if GpaRange::new(region.base, region.end()).overlaps(range) {
            region.flags.remove(RegionFlags::ZEROED);
        }
    }
}
