// SPDX-License-Identifier: Apache-2.0
//! Why vCPUs do not come up, or do not come to rest.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use super::state::StateError;
use crate::config::lists::written;
use crate::field::Field;
use crate::sandbox::JailError;
use crate::vm::VmError;

const AFFINITY: Field = Field::of("cpus", "affinity");

/// Why the vCPUs did not come up.
#[derive(Debug, thiserror::Error)]
pub enum VcpuError {
    /// The host has no room for another thread.
    #[error("vCPU {index}: its thread cannot be started")]
    Thread {
        /// Index of the vCPU.
        index: u16,
        /// Why.
        source: io::Error,
    },
    /// KVM refused.
    #[error("vCPU {index}")]
    Create {
        /// Index of the vCPU.
        index: u16,
        /// Why.
        source: VmError,
    },
    /// The host has not the CPUs that it is to run on.
    #[error(
        "{AFFINITY}=[{index}@[{cpus}]]: cannot run on any of these: must be CPUs that this host lets flatboot use",
        cpus = written(.cpus)
    )]
    Affinity {
        /// Index of the vCPU.
        index: u16,
        /// The CPUs.
        cpus: BTreeSet<u16>,
        /// Why.
        source: io::Error,
    },
    /// Its thread has no jail.
    #[error("vCPU {index}")]
    Jail {
        /// Index of the vCPU.
        index: u16,
        /// Why.
        source: JailError,
    },
    /// A thread ended before it reported.
    #[error("a vCPU thread ended without a message")]
    Lost,
    /// The signal that interrupts a vCPU cannot be had.
    #[error("vCPUs: the signal that interrupts them cannot be handled")]
    Signal(#[source] io::Error),
    /// It cannot be saved, or cannot be what was saved.
    #[error("vCPU {index}")]
    State {
        /// Index of the vCPU.
        index: u16,
        /// Why.
        source: StateError,
    },
    /// It did not come to rest in time.
    #[error("vCPU {index}: has not stopped in time: its output, or this host, is too slow")]
    Busy {
        /// Index of the vCPU.
        index: usize,
    },
    /// It has ended: whoever owns the VM hears of that next.
    #[error("vCPU {index}: has ended: the VM is about to be over")]
    Ended {
        /// Index of the vCPU.
        index: usize,
    },
    /// One of a VM that is over has not ended since.
    #[error("a vCPU of the VM before: has not stopped within {} s: this host is too slow", .limit.as_secs())]
    LeftBehind {
        /// How long it had.
        limit: Duration,
    },
}
