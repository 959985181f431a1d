// SPDX-License-Identifier: Apache-2.0
//! The plan of a VM's memory: everything that follows from its size, before anything is mapped.

use flatboot_handoff::{Arena, Region, RegionFlags, SECTION_SIZE, TableError, encode, encoded_len};

use super::arenas::arenas;
use super::e820::{E820Entry, e820};
use super::range::{AddressWidth, GpaRange};
use super::shape::{Layout, MAX_HOLES, check_width, slots};
use super::size::{MemorySize, Size};
use super::zone::{Backing, Slot, Zone, ram, runs};
use crate::field::Field;
use crate::layout::{ABOVE_4G, HIGH_MEMORY_START};

const SIZE: Field = Field::of("memory", "size");
const HOLES: Field = Field::of("study", "holes");

/// What nobody asks for but to learn what a part of the fast boot is worth. By default all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Study {
    /// How much memory is below 4 GiB.
    pub layout: Layout,
    /// Whether the hand-off says where the memmap goes.
    pub arenas: bool,
    /// Whether the hand-off says which memory is known to be zero.
    pub zeroed: bool,
    /// Gaps of one section to cut into the memory above 4 GiB; at most [`MAX_HOLES`].
    pub holes: u16,
}

impl Default for Study {
    fn default() -> Self {
        Self { layout: Layout::Split, arenas: true, zeroed: true, holes: 0 }
    }
}

/// What a plan follows from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanInput {
    /// All of the VM's RAM.
    pub size: MemorySize,
    /// What backs it, if there are no zones.
    pub backing: Backing,
    /// The parts that it is made of, which add up to its size, in order; each node's are next to each other. Without any, it lies on
    /// one node.
    pub zones: Vec<Zone>,
    /// What is different from an ordinary VM, to study it.
    pub study: Study,
    /// How wide the guest's physical addresses are: what KVM supports, at most what the processor reports.
    pub address_width: AddressWidth,
}

impl PlanInput {
    /// An ordinary VM with all that makes its boot fast.
    #[must_use]
    pub fn new(size: MemorySize, address_width: AddressWidth) -> Self {
        Self { size, backing: Backing::default(), zones: Vec::new(), study: Study::default(), address_width }
    }
}

/// Why memory cannot be planned as asked, or cannot hold what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum PlanError {
    #[error(
        "{SIZE}={size:#}: must be between {min:#} and {max:#}, which is what {bits}-bit physical addresses have room for"
    )]
    TooLarge { size: MemorySize, min: Size, max: Size, bits: u8 },
    #[error("{HOLES}={holes}: must be at most {MAX_HOLES}, the e820 map has no room for more")]
    TooManyHoles { holes: u16 },
    #[error(
        "{HOLES}={holes}: must be fewer than the whole sections of {:#} above 4 GiB, which are {sections}",
        Size(SECTION_SIZE)
    )]
    TooFewSections { holes: u16, sections: u64 },
    #[error(
        "kernel: takes guest memory {kernel}: must be inside {room}, the RAM for kernels that {SIZE}={memory:#} gives"
    )]
    Kernel { kernel: GpaRange, room: GpaRange, memory: Size },
    #[error(
        "initramfs: {size} bytes: must be at most {room}, the largest piece that the kernel leaves of {SIZE}={memory:#}"
    )]
    Initramfs { size: u64, room: u64, memory: Size },
}

impl PlanError {
    /// Whether the command line alone is wrong, whatever files there are.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::Kernel { .. } | Self::Initramfs { .. })
    }
}

/// RAM, its e820 map and its hand-off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    input: PlanInput,
    slots: Vec<Slot>,
    ram: Vec<GpaRange>,
    e820: Vec<E820Entry>,
    regions: Vec<Region>,
    arenas: Vec<Arena>,
}

impl MemoryPlan {
    /// Plans memory: what the layout keeps below 4 GiB, the rest from 4 GiB up.
    pub fn new(input: &PlanInput) -> Result<Self, PlanError> {
        let slots = slots(input)?;
        let (ram, runs) = (ram(&slots), runs(&slots));
        let regions = regions(&runs, input);
        let arenas = if input.study.arenas { arenas(&runs, &regions) } else { Vec::new() };
        Ok(Self { input: input.clone(), e820: e820(&ram), slots, ram, regions, arenas })
    }

    /// What it follows from.
    #[must_use]
    pub const fn input(&self) -> &PlanInput {
        &self.input
    }

    /// The KVM memory slots, sorted; each one contiguous mapping in the VMM. The first starts at 0.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// RAM, whatever backs it and whatever node it lies on: sorted ranges that do not touch. The first starts at 0.
    #[must_use]
    pub fn ram(&self) -> &[GpaRange] {
        &self.ram
    }

    /// The same by node.
    #[must_use]
    pub fn runs(&self) -> Vec<(GpaRange, u32)> {
        runs(&self.slots)
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

    /// Checks that guest physical addresses of another width than was planned with reach all of it.
    pub fn check_width(&self, width: AddressWidth) -> Result<(), PlanError> {
        check_width(&self.input, width)
    }

    /// Notes that the VMM writes to `range` before the guest runs: no region that shares a byte with it is `ZEROED`.
    pub fn mark_written(&mut self, range: GpaRange) {
        for region in &mut self.regions {
            if GpaRange::new(region.base, region.end()).overlaps(range) {
                region.flags.remove(RegionFlags::ZEROED);
            }
        }
    }

    /// The hand-off table, as the guest finds it in its memory.
    pub fn hand_off(&self) -> Result<Vec<u8>, TableError> {
        let mut table = vec![0; encoded_len(self.regions.len(), self.arenas.len())];
        encode(&self.regions, &self.arenas, &mut table)?;
        Ok(table)
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
