// SPDX-License-Identifier: Apache-2.0
//! What KVM says of an error of its own, so that a report of it can be followed up.

#![expect(unsafe_code, reason = "what an exit says is in a union of struct kvm_run")]

use std::fmt::{self, Display, Formatter};

use kvm_ioctls::VcpuFd;

/// `KVM_EXIT_INTERNAL_ERROR` (the kernel's Documentation/virt/kvm/api.rst, section 5).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InternalError {
    /// `KVM_INTERNAL_ERROR_*`.
    reason: u32,
    /// Where the guest was, if KVM can say.
    rip: Option<u64>,
    /// For emulation: flags, the instruction in 16 bytes after its size, why the guest was left, and what was said of that.
    data: Vec<u64>,
}

impl InternalError {
    /// Of a vCPU that has just stopped with this exit.
    pub(super) fn of(vcpu: &mut VcpuFd) -> Self {
        let rip = vcpu.get_regs().map(|regs| regs.rip).ok();
        // SAFETY: KVM fills in `internal` before it returns with KVM_EXIT_INTERNAL_ERROR, and any bits are valid integers.
        let said = unsafe { vcpu.get_kvm_run().__bindgen_anon_1.internal };
        Self { reason: said.suberror, rip, data: said.data.iter().copied().take(said.ndata as usize).collect() }
    }
}

impl Display for InternalError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { reason, rip, data } = self;
        let meaning = match *reason {
            1 => "an instruction that it cannot emulate",
            2 => "simultaneous exceptions",
            3 => "an event that it cannot deliver",
            4 => "an exit that it does not know",
            _ => "see its documentation",
        };
        write!(f, "internal error {reason} ({meaning})")?;
        rip.iter().try_for_each(|rip| write!(f, " at RIP {rip:#x}"))?;
        if !data.is_empty() {
            f.write_str(", data")?;
        }
        data.iter().try_for_each(|word| write!(f, " {word:#x}"))?;
        f.write_str("; see `flatboot check`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_and_with_what() {
        let error = InternalError { reason: 1, rip: Some(0x100), data: vec![1, 0x0fc7] };
        assert_eq!(
            error.to_string(),
            "internal error 1 (an instruction that it cannot emulate) at RIP 0x100, data 0x1 0xfc7; \
             see `flatboot check`"
        );
        let bare = InternalError { reason: 9, rip: None, data: Vec::new() };
        assert_eq!(bare.to_string(), "internal error 9 (see its documentation); see `flatboot check`");
    }
}
