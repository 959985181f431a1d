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
    /// A disk is another one.
    #[error("disk {path}: {how}")]
    Disk {
        /// Its file.
        path: String,
        /// In what.
        how: Mismatch,
    },
    /// The content of memory.
    #[error("memory")]
    Image(#[from] ImageError),
}

impl RestoreError {
    /// A device is another one, of a VM with these disks, by their paths: they have the first slots.
    pub(super) fn of_device(AtAddress { address, source }: AtAddress<Mismatch>, disks: &[String]) -> Self {
        match slot(address).and_then(|slot| disks.get(usize::try_from(slot).ok()?)) {
            Some(path) => Self::Disk { path: path.clone(), how: source },
            None => Self::Device(AtAddress { address, source }),
        }
    }
}

/// Which virtio device is at `address`, if one can be.
fn slot(address: u64) -> Option<u64> {
    let at = address.checked_sub(layout::VIRTIO_MMIO.start).filter(|_| layout::VIRTIO_MMIO.contains(&address));
    at.map(|at| at / layout::VIRTIO_MMIO_STRIDE)
}

/// What is at `address`, as threads and logs have it.
fn device(address: u64) -> String {
    if let Some(slot) = slot(address) {
        return format!("virtio{slot}");
    }
    if layout::PORT_SERIAL.contains(&address) { "serial".to_owned() } else { format!("{address:#x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_another_one_is_named_by_its_path() {
        let line = |address| {
            let source = Mismatch::of("size", 4608, "4096 bytes, as it was");
            RestoreError::of_device(AtAddress { address, source }, &["a.img".to_owned(), "b.img".to_owned()])
                .to_string()
        };
        let wrong = "size is 4608: must be 4096 bytes, as it was";
        let slot = |slot| layout::VIRTIO_MMIO.start + slot * layout::VIRTIO_MMIO_STRIDE;
        assert_eq!(line(slot(1)), format!("disk b.img: {wrong}"));
        assert_eq!(line(slot(2)), format!("virtio2: {wrong}"));
        assert_eq!(line(layout::PORT_SERIAL.start), format!("serial: {wrong}"));
    }
}
