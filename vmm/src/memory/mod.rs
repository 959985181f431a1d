// SPDX-License-Identifier: Apache-2.0
//! Guest memory: planned as pure functions, then mapped.

mod arenas;
mod backing;
mod choice;
mod e820;
mod error;
pub mod fault;
mod foreign;
pub mod guest;
pub mod held;
pub mod host;
mod input;
mod map;
mod pages;
mod place;
mod plan;
pub mod prefault;
mod range;
mod region;
pub(crate) mod scan;
mod shape;
mod size;
pub mod touched;
mod zone;

pub use backing::{HostBacking, total};
pub use choice::{Layout, MAX_HOLES, Prefault, Thp};
pub use e820::{E820_MAX_ENTRIES, E820Entry, E820Kind};
pub use error::PlanError;
pub use foreign::{Foreign, ForeignError, ForeignHandOff};
pub use input::{PayloadKind, PlanInput, Study};
pub use map::MemoryMap;
pub use pages::{HUGE_PAGE, HostPages};
pub use plan::MemoryPlan;
pub use range::{AddressWidth, GpaRange};
pub use region::{GuestMemory, Region, Source};
pub use size::{MemorySize, MemorySizeError, Size};
pub use zone::{Backing, Slot, Zone};
