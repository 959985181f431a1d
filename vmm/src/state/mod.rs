// SPDX-License-Identifier: Apache-2.0
//! What a VM is at a moment, apart from what it is made of: structures that can be written to a file, and read by another flatboot of
//! the same version; and the content of its memory beside them.

mod device;
mod directory;
mod file;
pub mod image;
mod machine;
mod whole;

pub use device::{DeviceState, HeldState, LaneState, Mismatch, Placed, Position, QueueState, SerialState, VirtioState};
pub use directory::{DirectoryError, Unfinished, files, open};
#[cfg(any(test, fuzzing))]
pub(crate) use file::header;
pub use file::{StateFileError, VERSION, read, write};
pub use machine::{Controllers, MachineState, VcpuState};
pub use whole::{DeviceStates, Whole};
