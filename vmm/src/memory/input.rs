// SPDX-License-Identifier: Apache-2.0
//! What a plan of memory follows from.

use super::choice::{Layout, Prefault, Thp};
use super::range::GpaRange;
use super::size::{MemorySize, Size};
use super::zone::{Backing, Zone};

/// What nobody asks for but to learn what a part of the fast boot is worth. By default all of it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Study {
    /// How much memory is below 4 GiB.
    pub layout: Layout,
    /// Whether the hand-off says where the memmap goes.
    pub arenas: bool,
    /// Whether the hand-off says which memory is known to be zero.
    pub zeroed: bool,
    /// Gaps of one section to cut into the memory above 4 GiB; at most [`MAX_HOLES`](super::MAX_HOLES), and none where there are several zones.
    pub holes: u16,
}

impl Default for Study {
    fn default() -> Self {
        Self { layout: Layout::Split, arenas: true, zeroed: true, holes: 0 }
    }
}

/// What is asked of a VM's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanInput {
    /// The parts that it is made of, in order; each node's are next to each other. There is one at least.
    pub zones: Vec<Zone>,
    /// Bytes that the guest may come to own while it runs: whole sections, on the first node.
    pub held: u64,
    /// Where to ask the host for transparent huge pages.
    pub thp: Thp,
    /// What host memory is there before the guest runs.
    pub prefault: Prefault,
    /// Whether vCPU threads back what the guest touches first.
    pub early: bool,
    /// What is different from an ordinary VM, to study it.
    pub study: Study,
}

impl PlanInput {
    /// An ordinary VM with all that makes its boot fast.
    #[must_use]
    pub fn new(size: MemorySize) -> Self {
        let zones = vec![Zone { size: size.bytes(), node: 0, backing: Backing::default() }];
        Self {
            zones,
            held: 0,
            thp: Thp::default(),
            prefault: Prefault::default(),
            early: true,
            study: Study::default(),
        }
    }

    /// All of the VM's RAM.
    #[must_use]
    pub fn size(&self) -> Size {
        Size(self.zones.iter().fold(0, |sum, zone| sum.saturating_add(zone.size)))
    }
}

/// What the guest starts with: what of its memory flatboot fills before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadKind {
    /// A kernel.
    Kernel {
        /// What guest memory it takes (image, bss and what it needs to decompress itself), if that is known.
        image: Option<GpaRange>,
        /// Bytes of its initramfs, if it has one.
        initramfs: Option<u64>,
    },
    /// Firmware, which finds memory as it was mapped and puts everything where it wants.
    Firmware,
}
