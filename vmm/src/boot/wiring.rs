// SPDX-License-Identifier: Apache-2.0
//! What connects devices to their buses and to the VM, and why they cannot be built.

use std::io;
use std::sync::{Arc, Mutex};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EventFd};

use crate::config::{DISK_PATH, FileError};
use crate::devices::bus::{BusDevice, BusError};
use crate::devices::virtio::BlockError;
use crate::vm::{Vm, VmError};

/// Why the devices could not be built.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// Out of file descriptors or threads.
    #[error("devices: {what}")]
    Host {
        /// What was being made.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The layout puts two devices at one place.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// KVM refused an interrupt line or a doorbell.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The serial port's file cannot be used.
    #[error(transparent)]
    Output(#[from] FileError),
    /// A disk cannot be used.
    #[error("{}", DISK_PATH.at(*index).is(path))]
    Disk {
        /// How many others come before it.
        index: usize,
        /// The file.
        path: String,
        /// Why.
        source: BlockError,
    },
}

pub(super) fn host(what: &'static str) -> impl Fn(io::Error) -> DevicesError {
    move |source| DevicesError::Host { what, source }
}

pub(super) fn shared<T: BusDevice + 'static>(device: T) -> Arc<Mutex<T>> {
    Arc::new(Mutex::new(device))
}

/// An eventfd that raises interrupt line `gsi`.
pub(super) fn line(vm: &Vm, gsi: u32) -> Result<EventFd, DevicesError> {
    let irq = EventFd::new(EFD_CLOEXEC).map_err(host("interrupt line"))?;
    vm.connect_irq(&irq, gsi)?;
    Ok(irq)
}
