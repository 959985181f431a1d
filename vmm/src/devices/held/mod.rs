// SPDX-License-Identifier: Apache-2.0
//! The memory device: by it the guest learns how much of its held memory it is to own, and says how much it does.
//!
//! docs/elastic-memory.md has its registers, for whoever writes a driver. A thread of its own gives and takes the host's memory
//! ([`HeldControl::serve`]); a guest's write changes numbers, and wakes that thread.

mod control;
pub mod registers;
mod state;
#[cfg(test)]
mod tests;

pub use control::{HeldControl, Progress, Provider, Report};
pub use registers::HeldRegisters;
pub use state::{Asked, Ended};
