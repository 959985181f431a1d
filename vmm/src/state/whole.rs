// SPDX-License-Identifier: Apache-2.0
//! All of a VM, but for the content of its memory.

use serde::{Deserialize, Serialize};

use super::device::Placed;
use super::image::Id;
use super::machine::MachineState;

/// A VM at a moment at which nothing of it works, made from a configuration `C`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Whole<C> {
    /// Which image has the content of its memory.
    pub id: Id,
    /// What it was made from.
    pub config: C,
    /// The pieces of its memory, in the order in which the image has them: guest address and bytes of each.
    pub memory: Vec<(u64, u64)>,
    /// What KVM has of it.
    pub machine: MachineState,
    /// What its devices keep.
    pub devices: DeviceStates,
}

/// What devices keep, by bus.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceStates {
    /// Those at I/O ports,
    pub ports: Vec<Placed>,
    /// and those at guest physical addresses.
    pub mmio: Vec<Placed>,
}
