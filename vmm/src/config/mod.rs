// SPDX-License-Identifier: Apache-2.0
//! The configuration of a VM: values that have been checked, and the syntax they are written in.
//!
//! [`RawConfig`] is what a user typed, and a JSON file is another way to say the same: both become a [`VmConfig`], whose values are
//! valid. [`Config`] is made from that by a conversion which consumes it and opens every file, and which leaves no trace if anything
//! is wrong.

mod balloon;
mod client;
mod cmdline;
mod console;
mod convert;
mod disk;
mod distinct;
mod error;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod field;
mod file;
mod handoff;
mod image;
mod json;
mod limits;
pub(crate) mod lists;
mod lock;
mod memory;
mod net;
mod numa;
mod options;
mod output;
mod pages;
mod payload;
mod rate;
mod raw;
mod rng;
mod saved;
mod serial;
mod shape;
mod study;
mod vcpus;
mod vm;
mod vsock;
mod zone;

use std::time::Duration;

pub use balloon::BalloonConfig;
pub(crate) use client::of_restore;
pub use cmdline::{Cmdline, CmdlineError, KernelConsole};
pub use console::ConsoleConfig;
pub use disk::{DiskConfig, DiskFiles, DiskOption, PATH as DISK_PATH};
pub use error::{ConfigError, ReadError};
pub use field::FieldError;
pub use file::{FileError, FileFault, InputFile};
pub use handoff::HandOff;
pub(crate) use json::of_body;
pub use memory::MemoryConfig;
pub use net::{NetConfig, NetEnd, NetOption};
pub use numa::NumaOption;
pub use options::{OptionError, Options, parse_size};
pub use output::OutputFile;
pub use payload::{FIRMWARE, FirmwareConfig, INITRAMFS, KERNEL, KernelConfig, Payload};
pub use rate::RateConfig;
pub use raw::{RawConfig, ShapeArgs};
pub use rng::RngConfig;
pub use saved::RENEWABLE;
pub use serial::SerialConfig;
pub use shape::Shape;
pub use study::{HANDOFF_FILE, StudyConfig};
pub use vcpus::{CpuCount, CpusConfig, NoCpuCount};
pub use vm::{AddError, VmConfig};
pub use vsock::{VsockConfig, VsockOption};
pub use zone::ZoneOption;

use crate::memory::PlanInput;
use crate::numa::Nodes;

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
    /// How many vCPUs, and where they run.
    pub cpus: CpusConfig,
    /// How much memory, in which parts, and how the host backs it.
    pub memory: PlanInput,
    /// The nodes that vCPUs and memory lie on.
    pub nodes: Nodes,
    /// What the guest is told about its memory.
    pub hand_off: HandOff,
    /// The disks, in the order in which the guest sees them.
    pub disks: Vec<DiskConfig>,
    /// The network interfaces, likewise; all virtio devices are at most [`VIRTIO_SLOTS`](crate::layout::VIRTIO_SLOTS).
    pub nets: Vec<NetConfig>,
    /// What connects programs of the guest and of the host.
    pub vsock: Option<VsockConfig>,
    /// Where the virtio console leads, if there is one.
    pub console: Option<ConsoleConfig>,
    /// What the guest gives memory up by.
    pub balloon: Option<BalloonConfig>,
    /// Where the guest's random bytes come from; no device without.
    pub rng: Option<RngConfig>,
    /// What the serial port is connected to.
    pub serial: SerialConfig,
    /// Most bytes of each file that the serial port or the console writes to.
    pub serial_limit: Option<u64>,
    /// How long a guest may take to power off once asked.
    pub shutdown_timeout: Duration,
}

impl MachineConfig {
    /// The files that take what the guest writes.
    pub fn outputs(&self) -> impl Iterator<Item = &OutputFile> {
        let serial = if let SerialConfig::File(output) = &self.serial { Some(output) } else { None };
        let console = if let Some(ConsoleConfig::File(output)) = &self.console { Some(output) } else { None };
        serial.into_iter().chain(console)
    }

    /// What an earlier guest has said stays there.
    pub const fn append(&mut self) {
        if let SerialConfig::File(output) = &mut self.serial {
            output.append();
        }
        if let Some(ConsoleConfig::File(output)) = &mut self.console {
            output.append();
        }
    }
}
