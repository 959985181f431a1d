// SPDX-License-Identifier: Apache-2.0
//! Why firmware cannot start.

use std::io;
use std::path::PathBuf;

use crate::config::KERNEL;
use crate::field::Field;
use crate::memory::guest::MapError;

const CPUS: Field = Field::section("cpus");

/// Why firmware cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// The file could not be read.
    #[error("firmware {path}: cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is something else.
    #[error("firmware {path}: not firmware: {found}; an EDK2 image for QEMU's microvm machine is needed")]
    Unknown {
        /// The file.
        path: PathBuf,
        /// What gives it away.
        found: &'static str,
    },
    /// The file has changed since it was looked at.
    #[error("firmware {path}: cannot be read into flash")]
    Copy {
        /// The file.
        path: PathBuf,
        /// Why.
        source: vm_memory::GuestMemoryError,
    },
    /// The host has no room for the image.
    #[error("firmware: there is no room for flash")]
    Map(#[from] MapError),
    /// A file that firmware is to fetch cannot be used.
    #[error("{}: cannot be handed to firmware", field.is(path.display()))]
    Handle {
        /// The field that names it.
        field: Field,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// More vCPUs than it can start.
    #[error("firmware: starts APIC ids below 255, {CPUS} gives them up to {largest}: must be less, or {KERNEL} alone")]
    TooManyVcpus {
        /// The largest id.
        largest: u32,
    },
    /// The device tree has a name or a length that the format has no room for.
    #[error("firmware: device tree: {0}")]
    DeviceTree(String),
    /// The plan breaks the hand-off's own rules.
    #[error("memory hand-off")]
    HandOff(#[from] flatboot_handoff::TableError),
}
