// SPDX-License-Identifier: Apache-2.0
//! What a vCPU stops for, and who answers.

use std::sync::atomic::Ordering;

use kvm_ioctls::{VcpuExit, VcpuFd};
use vm_memory::GuestMemoryBackend;

use super::Shared;
use super::internal::InternalError;
use crate::devices::bus::GuestRequest;
use crate::ending::Ending;
use crate::memory::held::HeldMemory;
use crate::observe::counters::Exit;

/// What a `KVM_RUN` leads to.
#[derive(Debug)]
pub(super) enum After {
    /// Another one.
    Run,
    /// Another one, as nothing has happened but that it was interrupted: nothing that the guest does is half done.
    Interrupted,
    /// None: the vCPU must not run again.
    Over(Ending),
}

/// Has KVM finish what the last exit was about, and goes no further: then nothing of the vCPU is outside of it (`KVM_RUN` in
/// Documentation/virt/kvm/api.rst).
pub(super) fn complete(vcpu: &mut VcpuFd, index: u16, shared: &Shared) -> Option<Ending> {
    vcpu.set_kvm_immediate_exit(1);
    let ending = loop {
        match step(vcpu, index, shared) {
            After::Run => {}
            After::Interrupted => break None,
            After::Over(ending) => break Some(ending),
        }
    };
    vcpu.set_kvm_immediate_exit(0);
    ending
}

/// One `KVM_RUN` and what it asks for.
pub(super) fn step(vcpu: &mut VcpuFd, index: u16, shared: &Shared) -> After {
    let over = |what: String| After::Over(Ending::Kvm { vcpu: index, what });
    let asked = |request: Option<GuestRequest>| request.map_or(After::Run, |request| asked(request, shared));
    let result = vcpu.run();
    shared.counters.exit(index, kind(&result));
    match result {
        Ok(VcpuExit::IoIn(port, data)) => {
            shared.ports.read(u64::from(port), data);
            After::Run
        }
        Ok(VcpuExit::IoOut(port, data)) => asked(shared.ports.write(u64::from(port), data)),
        Ok(VcpuExit::MmioRead(address, data)) => {
            shared.mmio.read(address, data);
            After::Run
        }
        Ok(VcpuExit::MmioWrite(address, data)) => asked(shared.mmio.write(address, data)),
        Ok(VcpuExit::Shutdown) => After::Over(Ending::TripleFault { vcpu: index }),
        Ok(VcpuExit::InternalError) => over(InternalError::of(vcpu).to_string()),
        Ok(VcpuExit::FailEntry(reason, cpu)) => {
            over(format!("hardware refused entry, reason {reason:#x} on CPU {cpu}"))
        }
        Ok(VcpuExit::Intr | VcpuExit::IrqWindowOpen) => After::Run,
        Ok(VcpuExit::MemoryFault { gpa, size, .. }) => over(unbacked(Some((gpa, size)), shared)),
        Ok(other) => over(format!("unexpected exit {other:?}")),
        Err(error) => match error.errno() {
            // EAGAIN: a waiting vCPU was sent its INIT; the next KVM_RUN goes on from there.
            libc::EINTR | libc::EAGAIN => After::Interrupted,
            libc::EFAULT | libc::ENOMEM | libc::EHWPOISON => over(unbacked(None, shared)),
            _ => over(error.to_string()),
        },
    }
}

/// What a write asks of the whole machine.
fn asked(request: GuestRequest, shared: &Shared) -> After {
    match request {
        GuestRequest::Panic => shared.panics(),
        // Kernels that know no marks write any byte to that port, for delays.
        GuestRequest::PanicSaid if !shared.panicked.load(Ordering::Relaxed) => {}
        over => return After::Over(over.into()),
    }
    After::Run
}

/// What a page that the host does not have means, and which it is, where KVM says so
/// (`KVM_EXIT_MEMORY_FAULT`).
fn unbacked(range: Option<(u64, u64)>, shared: &Shared) -> String {
    let saved = shared.memory.iter().any(|region| region.source().is_some());
    said_of_unbacked(range, HeldMemory::of(&shared.memory).is_some(), saved)
}

/// The same of a guest whose memory is partly `held`, or not, and whose memory was `saved` in a file, or not.
fn said_of_unbacked(range: Option<(u64, u64)>, held: bool, saved: bool) -> String {
    let at = range.map(|(start, length)| format!(" at guest physical address {start:#x}, {length:#x} bytes"));
    let or = if held { ", or the guest has used memory that it had given back" } else { "" };
    let file = if saved { ", or the file memory of its snapshot has become shorter" } else { "" };
    format!("the host could not back a page of guest memory{}{or}{file}", at.unwrap_or_default())
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
            said_of_unbacked(Some((0x1_0000_2000, 4096)), false, false),
            "the host could not back a page of guest memory at guest physical address 0x100002000, 0x1000 bytes"
        );
        assert_eq!(said_of_unbacked(None, false, false), "the host could not back a page of guest memory");
        let held =
            "the host could not back a page of guest memory, or the guest has used memory that it had given back";
        assert_eq!(said_of_unbacked(None, true, false), held);
        let saved =
            "the host could not back a page of guest memory, or the file memory of its snapshot has become shorter";
        assert_eq!(said_of_unbacked(None, false, true), saved);
    }
}
