// SPDX-License-Identifier: Apache-2.0
//! Why the owner of a VM does not do what it is asked.

use super::lifecycle::NotNow;
use crate::boot::BootError;
use crate::config::{ConfigError, FileError};
use crate::devices::running::WorkerError;
use crate::devices::virtio::ResizeError;
use crate::field::Field;
use crate::vcpu::VcpuError;

const TIMELINE: Field = Field::section("timeline");

/// Why a request cannot be granted.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    /// There is no VM.
    #[error("there is no VM: must be created before")]
    NotCreated,
    /// There is one, and there can be no other.
    #[error("there is a VM: must be deleted before another one is created")]
    AlreadyCreated,
    /// The VM is in another state.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// What is asked for is impossible for this VM.
    #[error("{0}")]
    Refused(String),
    /// There is a device of that name.
    #[error("{0}")]
    Taken(String),
    /// There is no device of that name.
    #[error("there is no device with id={0}: must be the id of one in the configuration")]
    NoDevice(String),
    /// There is no disk of that name.
    #[error("there is no disk with id={0}: must be the id of one that the VM was started with")]
    NoDisk(String),
    /// A disk stays as large as it is.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// A vCPU does not come to rest.
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    /// A device does not come to rest.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The VM cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The guest cannot be told.
    #[error("the power button does not work")]
    PowerButton(#[source] std::io::Error),
    /// Nobody is there to do it.
    #[error("the VMM is about to end")]
    Gone,
}

/// Why a VM cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its configuration, or one of its files.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// This host, or an image.
    #[error(transparent)]
    Boot(#[from] BootError),
}

impl StartError {
    /// Whether the command line alone is wrong, whatever files and hosts there are.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Config(error) => error.is_usage(),
            Self::Boot(BootError::Plan(error)) => error.is_usage(),
            Self::Boot(_) => false,
        }
    }
}

impl VmmError {
    /// The same, of what is asked for.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Start(error) => error.is_usage(),
            Self::Refused(_) => true,
            _ => false,
        }
    }
}

/// Why there is no timeline of a VM that has run.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// Its file went away.
    #[error(transparent)]
    Output(#[from] FileError),
    /// It does not take the text.
    #[error("{}: cannot be written", TIMELINE.is(path))]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}
