// SPDX-License-Identifier: Apache-2.0
//! What is to be changed, and what came of it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// VMs and their changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The VMs, which all run from the first change to the last.
    pub machines: Vec<Machine>,
    /// The changes of a round, in order.
    pub changes: Vec<Change>,
    /// How many rounds.
    pub rounds: usize,
}

/// A VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// The VMM.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The file that it writes the guest's console to.
    pub console: PathBuf,
    /// What the console says when the first change may come.
    pub ready: String,
    /// How it is asked.
    pub control: Control,
}

/// How a VMM is asked for another size.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// flatboot's API.
    Flatboot {
        /// Its socket.
        socket: PathBuf,
        /// Bytes that the VM was booted with.
        size: u64,
    },
    /// QEMU's, for a virtio-mem device.
    Qmp {
        /// Its socket.
        socket: PathBuf,
        /// The device's `id`.
        device: String,
    },
}

/// A change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Change {
    /// Which of the VMs.
    pub machine: usize,
    /// What it is called in the results.
    pub name: String,
    /// Bytes that the guest is to have beyond what it was booted with.
    pub bytes: u64,
    /// What the console says once more before anything else is changed.
    pub then: Option<String>,
}

/// A change that was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Changed {
    /// Its name.
    pub name: String,
    /// When it was asked for, on `CLOCK_MONOTONIC`.
    pub asked_ns: u64,
    /// When the VMM had told that the guest has done it.
    pub done_ns: u64,
}
