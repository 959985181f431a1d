// SPDX-License-Identifier: Apache-2.0
//! Why the owner of a VM does not do what it is asked.

use std::io;
use std::path::PathBuf;

use super::lifecycle::NotNow;
use crate::boot::BootError;
use crate::config::{ConfigError, FieldError, FileError};
use crate::devices::bus::{AtAddress, Unsaved};
use crate::devices::running::WorkerError;
use crate::devices::virtio::ResizeError;
use crate::field::Field;
use crate::sandbox::JailError;
use crate::state::image::ImageError;
use crate::state::{DirectoryError, StateFileError};
use crate::vcpu::VcpuError;
use crate::vm::VmError;

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
    /// It has reset, and nothing else is to be done here.
    #[error("the VM does not start again")]
    NotAgain(#[source] Box<VmmError>),
    /// The guest cannot be told.
    #[error("the power button does not work")]
    PowerButton(#[source] io::Error),
    /// The VM is not saved.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// What was saved does not go on.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The guest's memory does not become what it was to be.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// It would not be the VM that is being saved.
    #[error("a snapshot of the VM is being written: must be over before")]
    Writing,
    /// Whoever asks is one too many.
    #[error("{0} requests wait for an answer: must be fewer")]
    TooMany(usize),
    /// Nobody is there to do it.
    #[error("the VMM is about to end")]
    Gone,
}

/// Why a guest has not as much memory as it was to have.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It could not, and says how far it came.
    #[error("desired_ram={desired}: the guest could not do all of it: it has {is} bytes of memory now")]
    Refused {
        /// Bytes that were wanted,
        desired: u64,
        /// and that it has.
        is: u64,
    },
    /// It does not say anything.
    #[error(
        "desired_ram={desired}: the guest has not done it within {seconds} s, and still may: it has {is} bytes of memory now"
    )]
    Late {
        /// Bytes that were wanted,
        desired: u64,
        /// and that it has.
        is: u64,
        /// How long it had.
        seconds: u64,
    },
    /// Nobody in the guest has heard of it.
    #[error(
        "desired_ram={desired}: no driver of the guest has looked at its memory device within {seconds} s, and one still may: it \
         has {is} bytes of memory now"
    )]
    NoDriver {
        /// Bytes that were wanted,
        desired: u64,
        /// and that it has.
        is: u64,
        /// How long it had.
        seconds: u64,
    },
    /// The host cannot give it.
    #[error("desired_ram={desired}: the host cannot give that much memory")]
    Host {
        /// Bytes that were wanted.
        desired: u64,
        /// Why.
        source: io::Error,
    },
    /// It is at work on another request.
    #[error("the guest is still at work on desired_ram={desired}: that must be over before")]
    Busy {
        /// Bytes that are wanted there.
        desired: u64,
    },
    /// There is no guest any more.
    #[error("the VM has ended before the guest had done it")]
    Over,
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
            Self::Refused(_) | Self::Restore(RestoreError::Sections(_)) => true,
            _ => false,
        }
    }
}

/// Why it cannot be said what a VM is.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant passes on the error of the module that it is named after")]
pub enum SaveError {
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Device(#[from] AtAddress<Unsaved>),
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// VMs like this one cannot be saved.
    #[error(transparent)]
    Config(#[from] FieldError),
    /// This one cannot be saved now.
    #[error("the VM cannot be saved")]
    Save(#[from] SaveError),
    /// Its place.
    #[error("{}", path.display())]
    Directory {
        /// Where it was to be.
        path: PathBuf,
        /// Why.
        source: DirectoryError,
    },
    /// What the guest has written to a disk.
    #[error("disk {path}: what the guest has written to it cannot be made safe")]
    Disk {
        /// Its file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The content of memory.
    #[error("the snapshot's memory")]
    Image(#[from] ImageError),
    /// The rest.
    #[error("the snapshot's state: cannot be written")]
    State(#[source] io::Error),
    /// This host does not say what of memory was touched, or has no thread for it.
    #[error("the snapshot cannot be begun")]
    Begin(#[source] io::Error),
    /// The thread that writes has no jail.
    #[error("the snapshot cannot be begun")]
    Jail(#[from] JailError),
    /// The thread that writes has ended.
    #[error("the thread that writes the snapshot has ended without a word")]
    Lost,
}

/// Why nothing goes on from a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It is not there.
    #[error("{}", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
        /// Why.
        source: DirectoryError,
    },
    /// There is no state in it.
    #[error("{}", path.display())]
    State {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: StateFileError,
    },
    /// What is to be different cannot be.
    #[error("{0}")]
    Sections(String),
    /// It cannot be that VM here.
    #[error("{}", path.display())]
    Boot {
        /// Where.
        path: PathBuf,
        /// Why.
        source: Box<BootError>,
    },
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
        source: io::Error,
    },
}
