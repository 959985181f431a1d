// SPDX-License-Identifier: Apache-2.0
//! What a vCPU stops for, and who answers.

use kvm_ioctls::{VcpuExit, VcpuFd};

use super::Shared;
use super::internal::InternalError;
use crate::ending::Ending;
use crate::observe::counters::Exit;

/// One `KVM_RUN` and what it asks for; an [`Ending`] when the vCPU must not run again.
pub(super) fn step(vcpu: &mut VcpuFd, index: u16, shared: &Shared) -> Option<Ending> {
    let over = |what: String| Some(Ending::Kvm { vcpu: index, what });
    let result = vcpu.run();
    shared.counters.exit(index, kind(&result));
    match result {
        Ok(VcpuExit::IoIn(port, data)) => {
            shared.ports.read(u64::from(port), data);
            None
        }
        Ok(VcpuExit::IoOut(port, data)) => shared.ports.write(u64::from(port), data).map(Ending::from),
        Ok(VcpuExit::MmioRead(address, data)) => {
            shared.mmio.read(address, data);
            None
        }
        Ok(VcpuExit::MmioWrite(address, data)) => shared.mmio.write(address, data).map(Ending::from),
        Ok(VcpuExit::Shutdown) => Some(Ending::TripleFault { vcpu: index }),
        Ok(VcpuExit::InternalError) => over(InternalError::of(vcpu).to_string()),
        Ok(VcpuExit::FailEntry(reason, cpu)) => {
            over(format!("hardware refused entry, reason {reason:#x} on CPU {cpu}"))
        }
        Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => None,
        Ok(other) => over(format!("unexpected exit {other:?}")),
        Err(error) => match error.errno() {
            // EAGAIN: a waiting vCPU was sent its INIT; the next KVM_RUN goes on from there.
            libc::EINTR | libc::EAGAIN => None,
            libc::EFAULT | libc::ENOMEM => over("the host could not back a page of guest memory".to_owned()),
            _ => over(error.to_string()),
        },
    }
}

/// What it is counted as.
fn kind(result: &Result<VcpuExit<'_>, kvm_ioctls::Error>) -> Exit {
    match result {
        Ok(VcpuExit::IoIn(..)) => Exit::PortRead,
        Ok(VcpuExit::IoOut(..)) => Exit::PortWrite,
        Ok(VcpuExit::MmioRead(..)) => Exit::MmioRead,
        Ok(VcpuExit::MmioWrite(..)) => Exit::MmioWrite,
        Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => Exit::Interrupted,
        Err(error) if error.errno() == libc::EINTR => Exit::Interrupted,
        _ => Exit::Other,
    }
}
