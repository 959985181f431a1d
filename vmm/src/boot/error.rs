// SPDX-License-Identifier: Apache-2.0
//! Why a VM does not start.

use super::load::LoadError;
use super::wiring::DevicesError;
use crate::config::FileError;
use crate::devices::running::WorkerError;
use crate::firmware::FirmwareError;
use crate::kernel::KernelError;
use crate::memory::PlanError;
use crate::memory::guest::MapError;
use crate::memory::host::HostError;
use crate::memory::prefault::PrefaultError;
use crate::sandbox::JailError;
use crate::vcpu::VcpuError;
use crate::vm::VmError;

/// Why a VM did not start. Each source names the thing, the value and what would be right.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant passes on the error of the module that it is named after")]
pub enum BootError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Firmware(#[from] FirmwareError),
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
}
