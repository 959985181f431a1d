// SPDX-License-Identifier: Apache-2.0
//! What can be asked of the owner of a VM, and what it answers.

use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{DiskOption, NetOption, VmConfig, VsockOption};
use crate::observe::counters::Snapshot;

/// What is asked.
#[derive(Debug)]
pub enum Call {
    /// Keep this VM, and do not start it yet.
    Create(Box<VmConfig>),
    /// Start the VM, as somebody has wanted since then.
    Boot(Instant),
    /// Say what there is.
    Info,
    /// Say what vCPUs and devices have done.
    Counters,
    /// Bring the VM to rest: no vCPU runs and no device works when this is answered. It goes on unless that can be said of all.
    Pause,
    /// Let the VM go on.
    Resume,
    /// Keep all of it, which rests, in a directory that is to have this path.
    Snapshot(PathBuf),
    /// Have a VM go on from there, where there is none.
    Restore(Box<Restore>),
    /// End the VM at once, and keep its configuration.
    Shutdown,
    /// End the VM at once, and start it again.
    Reboot,
    /// Ask the guest to power off.
    PowerButton,
    /// Forget the VM; end it first if it runs.
    Delete,
    /// Give a VM that does not run one more disk.
    AddDisk(DiskOption),
    /// Give a VM that does not run one more network interface.
    AddNet(NetOption),
    /// Give a VM that does not run a vsock device.
    AddVsock(VsockOption),
    /// Make the VM another size.
    Resize(Resize),
    /// Have a disk of the VM that runs have so many bytes.
    ResizeDisk {
        /// What it is called.
        id: String,
        /// Bytes.
        size: u64,
    },
    /// Take a device from a VM that does not run.
    RemoveDevice(String),
    /// End the VM, and the owner.
    Quit,
}

/// What a VM is to go on from.
#[derive(Debug, Clone, Default)]
pub struct Restore {
    /// The directory of the snapshot.
    pub path: PathBuf,
    /// Whether its memory is read before it goes on.
    pub prefault: bool,
    /// Whether it goes on by itself.
    pub resume: bool,
    /// What is different from when it was saved, as sections of its configuration. Of its memory that is the size alone, which the guest
    /// is asked to have when it goes on.
    pub sections: Map<String, Value>,
}

/// What is to be of another size; what is not said stays as it is.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// How many processors.
    pub desired_vcpus: Option<u32>,
    /// Bytes of memory.
    pub desired_ram: Option<u64>,
    /// Bytes that the guest gives up of that.
    pub desired_balloon: Option<u64>,
}

/// What is answered.
#[derive(Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// What there is.
    Info(Box<Info>),
    /// What vCPUs and devices have done.
    Counters(Snapshot),
}

/// A VM, and where it is in its life.
#[derive(Debug, Serialize)]
pub struct Info {
    /// What it was made from.
    pub config: VmConfig,
    /// Where it is.
    pub state: InfoState,
    /// Bytes of its memory, without what the guest has given up because it was asked to.
    pub memory_actual_size: u64,
}

/// Where a VM is, for those who look at it from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum InfoState {
    /// It has never run.
    Created,
    /// It runs.
    Running,
    /// It rests.
    Paused,
    /// It has run, and is over.
    Shutdown,
}
