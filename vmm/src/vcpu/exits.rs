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
        Ok(VcpuExit::MemoryFault { gpa, size, .. }) => over(unbacked(Some((gpa, size)))),
        Ok(other) => over(format!("unexpected exit {other:?}")),
        Err(error) => match error.errno() {
            // EAGAIN: a waiting vCPU was sent its INIT; the next KVM_RUN goes on from there.
            libc::EINTR | libc::EAGAIN => None,
            libc::EFAULT | libc::ENOMEM | libc::EHWPOISON => over(unbacked(None)),
            _ => over(error.to_string()),
        },
    }
}

/// What a page that the host does not have means, and which it is, where KVM says so
/// (`KVM_EXIT_MEMORY_FAULT`).
fn unbacked(range: Option<(u64, u64)>) -> String {
    let at = range.map(|(start, length)| format!(" at guest physical address {start:#x}, {length:#x} bytes"));
    format!("the host could not back a page of guest memory{}", at.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_the_host_does_not_have_is_named_if_it_says_which() {
        assert_eq!(
            unbacked(Some((0x1_0000_2000, 4096))),
            "the host could not back a page of guest memory at guest physical address 0x100002000, 0x1000 bytes"
        );
        assert_eq!(unbacked(None), "the host could not back a page of guest memory");
    }
}
