// SPDX-License-Identifier: Apache-2.0
//! Guest memory: planned as pure functions, then mapped.

mod arenas;
mod backing;
mod e820;
pub mod fault;
mod foreign;
pub mod guest;
pub mod host;
mod map;
mod pages;
mod place;
mod plan;
pub mod prefault;
mod range;
mod region;
mod shape;
mod size;
mod zone;

pub use backing::{HostBacking, Prefault, Thp, total};
pub use e820::{E820_MAX_ENTRIES, E820Entry, E820Kind};
pub use foreign::{Foreign, ForeignError, ForeignHandOff};
pub use map::MemoryMap;
pub use pages::HostPages;
pub use plan::{MemoryPlan, PlanError, PlanInput, Study};
pub use range::{AddressWidth, GpaRange};
pub use region::Region;
pub use shape::{Layout, MAX_HOLES};
pub use size::{MemorySize, MemorySizeError, Size};
pub use zone::{Backing, Slot, Zone};

/// The guest's mapped memory. Cloning shares the mapping, which goes with the last clone.
pub type GuestMemory = vm_memory::GuestRegionCollection<Region>;
