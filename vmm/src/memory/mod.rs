// SPDX-License-Identifier: Apache-2.0
//! Guest memory: planned as pure functions, then mapped.

pub mod guest;

/// The guest's mapped memory. Cloning shares the mapping.
pub type GuestMemory = vm_memory::GuestMemoryMmap;
