// SPDX-License-Identifier: Apache-2.0
//! Guest memory: planned as pure functions, then mapped.

mod arenas;
mod e820;
pub mod guest;
mod map;
mod place;
mod plan;
mod range;
mod shape;
mod size;

pub(crate) use arenas::SECTION_MEMMAP;
pub use e820::{E820_MAX_ENTRIES, E820Entry, E820Kind};
pub use map::MemoryMap;
pub use plan::{MemoryPlan, PlanError, PlanInput};
pub use range::{AddressWidth, GpaRange};
pub use shape::MAX_HOLES;
pub use size::{MemorySize, MemorySizeError, Size};

/// The guest's mapped memory. Cloning shares the mapping.
pub type GuestMemory = vm_memory::GuestMemoryMmap;
