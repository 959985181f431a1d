// SPDX-License-Identifier: Apache-2.0
//! Why a VM does not start.

use super::load::LoadError;
use super::wiring::DevicesError;
use crate::config::{FileError, KERNEL};
use crate::devices::bus::AtAddress;
use crate::devices::running::WorkerError;
use crate::field::Field;
use crate::firmware::FirmwareError;
use crate::kernel::KernelError;
use crate::layout;
use crate::memory::guest::MapError;
use crate::memory::host::HostError;
use crate::memory::prefault::PrefaultError;
use crate::memory::{PlanError, Size};
use crate::sandbox::JailError;
use crate::state::Mismatch;
use crate::state::image::ImageError;
use crate::vcpu::VcpuError;
use crate::vm::VmError;

const SIZE: Field = Field::of("memory", "size");

/// Why a VM did not start. Each source names the thing, the value and what would be right.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is its message, or the error of the module that it is named after")]
pub enum BootError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Firmware(#[from] FirmwareError),
    #[error(
        "{SIZE}={size:#}: firmware has {bits}-bit physical addresses here: must be at most {max:#}, or {KERNEL} alone"
    )]
    FirmwareMemory { size: Size, max: Size, bits: u8 },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Prefault(#[from] PrefaultError),
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Vcpu(#[from] VcpuError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Devices(#[from] DevicesError),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Output(#[from] FileError),
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error("signals cannot be handled")]
    Signals(#[source] std::io::Error),
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl BootError {
    /// Whether it is about what was saved, and not about this host or another file.
    pub(crate) fn is_of_what_was_saved(&self) -> bool {
        matches!(
            self,
            Self::Restore(_) | Self::Vcpu(_) | Self::Vm(VmError::Model(_) | VmError::Deadline | VmError::Controllers)
        )
    }
}

/// Why what was saved cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state is of a VM that its own configuration does not describe.
    #[error("{what} is not what its configuration gives")]
    Inconsistent {
        /// What of it.
        what: &'static str,
    },
    /// A device is another one.
    #[error("{}: {}", device(.0.address), .0.source)]
    Device(AtAddress<Mismatch>),
    /// The content of memory.
    #[error("memory")]
    Image(#[from] ImageError),
}

/// What is at `address`, as threads and logs have it.
fn device(address: u64) -> String {
    if layout::VIRTIO_MMIO.contains(&address) {
        let slot = (address - layout::VIRTIO_MMIO.start) / layout::VIRTIO_MMIO_STRIDE;
        return format!("virtio{slot}");
    }
    if layout::PORT_SERIAL.contains(&address) { "serial".to_owned() } else { format!("{address:#x}") }
}
