// SPDX-License-Identifier: Apache-2.0
//! Parts of memory: what backs them, which node of the guest they lie on, and where in its address space.

use super::pages::HostPages;
use super::range::GpaRange;

/// What backs guest memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backing {
    /// The host's pages; those of a hugetlb pool are reserved when mapped.
    pub pages: HostPages,
    /// A memfd shared with other processes instead of private anonymous memory.
    pub shared: bool,
    /// The host's node that it is bound to; the host decides without.
    pub host_node: Option<u16>,
}

/// A part of memory as it is asked for. In the guest's address space, zones come one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Bytes of it: whole pages, and whole sections unless it is the last one.
    pub size: u64,
    /// The guest's node, as its kernel numbers them.
    pub node: u32,
    /// What backs it.
    pub backing: Backing,
}

/// A piece of RAM that is one mapping in the VMM and one memory slot of KVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Where it is.
    pub range: GpaRange,
    /// The guest's node.
    pub node: u32,
    /// What backs it.
    pub backing: Backing,
}

impl Slot {
    /// A slot of a VM with one node.
    #[must_use]
    pub const fn new(range: GpaRange, backing: Backing) -> Self {
        Self { range, node: 0, backing }
    }
}

/// Sorted slots as ranges of one node each: neighbours are one range, whatever backs them.
pub(super) fn runs(slots: &[Slot]) -> Vec<(GpaRange, u32)> {
    merged(slots.iter().map(|slot| (slot.range, slot.node)))
}

/// Sorted slots as ranges of RAM: neighbours are one range, whatever node they lie on.
pub(super) fn ram(slots: &[Slot]) -> Vec<GpaRange> {
    merged(slots.iter().map(|slot| (slot.range, 0))).into_iter().map(|(range, _)| range).collect()
}

fn merged(ranges: impl Iterator<Item = (GpaRange, u32)>) -> Vec<(GpaRange, u32)> {
    let mut merged: Vec<(GpaRange, u32)> = Vec::new();
    for (range, node) in ranges {
        match merged.last_mut() {
            Some((last, of)) if last.end() == range.start() && *of == node => {
                *last = GpaRange::new(last.start(), range.end());
            }
            _ => merged.push((range, node)),
        }
    }
    merged
}
