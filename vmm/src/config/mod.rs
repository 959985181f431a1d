// SPDX-License-Identifier: Apache-2.0
//! The configuration of a VM: values that have been checked, and the syntax they are written in.
//!
//! [`RawConfig`] is what a user typed, and a JSON file is another way to say the same: both become a [`VmConfig`], whose values are
//! valid. [`Config`] is made from that by a conversion which consumes it and opens every file, and which leaves no trace if anything
//! is wrong.

mod client;
mod cmdline;
mod convert;
mod disk;
mod error;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod file;
mod handoff;
mod image;
mod lock;
mod memory;
mod net;
mod options;
mod output;
mod payload;
mod rate;
mod raw;
mod serial;
mod vcpus;
mod vm;
mod vsock;

use std::fs::File;
use std::time::Duration;

pub use cmdline::{Cmdline, CmdlineError};
pub use disk::{DiskConfig, DiskOption, SECTOR_SIZE};
pub use error::{ConfigError, FieldError, JsonError};
pub use file::{FileError, FileFault, InputFile};
pub use handoff::HandOff;
pub use memory::MemoryConfig;
pub use net::{NetConfig, NetEnd, NetError, NetOption};
pub use options::{OptionError, Options, parse_size};
pub use output::OutputFile;
pub use payload::{FirmwareConfig, KernelConfig, Payload};
pub use rate::RateConfig;
pub use raw::{RawConfig, ShapeArgs};
pub use serial::SerialConfig;
pub use vcpus::{CpuCount, CpusConfig, NoCpuCount};
pub use vm::{AddError, VmConfig};
pub use vsock::{VsockConfig, VsockError, VsockOption};

/// A VM that can be built: every value is valid, every file is open, nothing is created or written yet.
///
/// Output files are the exception that needs care: they are open, and so exist, but what they held is still there; see
/// [`OutputFile`].
#[derive(Debug)]
pub struct Config {
    /// What it runs.
    pub payload: Payload,
    /// What it runs on.
    pub machine: MachineConfig,
    /// Where the timeline goes, as JSON.
    pub timeline: Option<OutputFile>,
    /// Whether a guest that resets starts again.
    pub restart_on_reset: bool,
    /// Whether files are kept away from flatboot once all these are open.
    pub landlock: bool,
}

/// The machine, whatever runs on it.
#[derive(Debug)]
pub struct MachineConfig {
    /// How many vCPUs, and what their threads do first.
    pub cpus: CpusConfig,
    /// How much memory, and how the host backs it.
    pub memory: MemoryConfig,
    /// What the guest is told about its memory.
    pub hand_off: HandOff,
    /// The disks, in the order in which the guest sees them.
    pub disks: Vec<DiskConfig>,
    /// The network interfaces, likewise; all virtio devices are at most [`VIRTIO_SLOTS`](crate::layout::VIRTIO_SLOTS).
    pub nets: Vec<NetConfig>,
    /// What connects programs of the guest and of the host.
    pub vsock: Option<VsockConfig>,
    /// Where the guest's random bytes come from; no device without.
    pub rng: Option<File>,
    /// What the serial port is connected to.
    pub serial: SerialConfig,
    /// Most bytes of the serial port's file.
    pub serial_limit: Option<u64>,
    /// How long a guest may take to power off once asked.
    pub shutdown_timeout: Duration,
}
