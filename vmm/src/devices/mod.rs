// SPDX-License-Identifier: Apache-2.0
//! The devices that a guest sees, and the buses that they sit on.
//!
//! A guest is an adversary: no access, register value or queue content makes a device panic, loop without bound or leave
//! guest memory. Each device's tests hold it to that with arbitrary input.

pub mod bus;
pub mod capped;
pub mod escape;
pub mod fw_cfg;
pub mod held;
pub mod i8042;
pub mod input;
pub mod ioapic;
pub mod mark;
pub mod power;
#[cfg(any(test, fuzzing))]
mod program;
pub mod pvpanic;
pub mod queued;
pub mod running;
pub mod serial;
pub mod terminal;
#[cfg(test)]
mod testing;
pub mod virtio;

pub use bus::{Bus, BusDevice, GuestRequest};
