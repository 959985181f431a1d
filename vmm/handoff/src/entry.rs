// SPDX-License-Identifier: Apache-2.0
//! What a table says: regions and arenas.

use bitflags::bitflags;

bitflags! {
    /// What is true of a region.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct RegionFlags: u32 {
        /// Its content is zero and no one has written to it.
        const ZEROED = 1;
        /// It is no memory yet: the kernel plans it and owns none of it until the VMM releases it. Firmware's memory map does
        /// not have it, nothing may touch it.
        const HELD = 1 << 1;
    }
}

/// A range of RAM that the kernel takes as one unit.
///
/// Any values can be in it; those in a [`Table`](crate::Table) keep the rules of [`TableError`](crate::TableError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region {
    /// GPA of its first byte.
    pub base: u64,
    /// Bytes in it.
    pub length: u64,
    /// Its NUMA node.
    pub node: u32,
    /// What is true of it.
    pub flags: RegionFlags,
}

impl Region {
    /// GPA after its last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.base.saturating_add(self.length)
    }

    /// Whether it is only planned.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.flags.contains(RegionFlags::HELD)
    }
}

/// Room for the memmap of a node's regions, inside one of them.
///
/// Any values can be in it; those in a [`Table`](crate::Table) keep the rules of [`TableError`](crate::TableError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arena {
    /// GPA of its first byte.
    pub base: u64,
    /// Bytes in it.
    pub length: u64,
    /// The node whose memmap it holds.
    pub node: u32,
}

impl Arena {
    /// GPA after its last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.base.saturating_add(self.length)
    }
}
