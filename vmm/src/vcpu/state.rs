// SPDX-License-Identifier: Apache-2.0
//! A vCPU's state: what of it KVM gives away, and takes for another one.
#![expect(unsafe_code, reason = "KVM_SET_XSAVE takes as many bytes as the kernel has")]

use std::cmp::Ordering;

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::VcpuFd;

use crate::field::Field;
use crate::state::VcpuState;
use crate::vm::{VmError, ioctl};

const NESTED: Field = Field::of("cpus", "nested");

/// The guest's clock register, which goes on meanwhile,
const MSR_TSC: u32 = 0x10;
/// and when it is to be woken by it: only has a meaning behind that, and behind the local APIC.
const MSR_TSC_DEADLINE: u32 = 0x6e0;
/// Of the feature register: the processor's virtualization is in use, on AMD's;
const EFER_SVME: u64 = 1 << 12;
/// and of CR4, on Intel's.
const CR4_VMXE: u64 = 1 << 13;

/// Why a vCPU cannot be saved, or cannot be what was saved.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// KVM refused.
    #[error(transparent)]
    Kvm(#[from] VmError),
    /// A guest that is itself a host.
    #[error("the guest runs VMs of its own, which cannot be saved: must have ended them, or be without {NESTED}")]
    Nested,
    /// A register that this host's KVM does not know so.
    #[error("model-specific register {index:#x}: this host's KVM does not take {value:#x} for it")]
    Msr {
        /// Its number.
        index: u32,
        /// What was saved.
        value: u64,
    },
}

/// What `vcpu` is like, with those of the model-specific registers `msrs` that it has. It must not be in the midst of an exit.
pub(super) fn save(vcpu: &VcpuFd, msrs: &[u32]) -> Result<VcpuState, StateError> {
    // First: it settles what is about to happen to a vCPU that waits.
    let mp_state = vcpu.get_mp_state().map_err(ioctl("KVM_GET_MP_STATE"))?;
    let sregs = vcpu.get_sregs().map_err(ioctl("KVM_GET_SREGS"))?;
    if sregs.efer & EFER_SVME != 0 || sregs.cr4 & CR4_VMXE != 0 {
        return Err(StateError::Nested);
    }
    Ok(VcpuState {
        tsc_khz: vcpu.get_tsc_khz().ok().filter(|khz| *khz > 0),
        mp_state,
        regs: vcpu.get_regs().map_err(ioctl("KVM_GET_REGS"))?,
        sregs,
        xsave: Box::new(vcpu.get_xsave().map_err(ioctl("KVM_GET_XSAVE"))?),
        xcrs: vcpu.get_xcrs().map_err(ioctl("KVM_GET_XCRS"))?,
        debug_regs: vcpu.get_debug_regs().map_err(ioctl("KVM_GET_DEBUGREGS"))?,
        // The timer may go off in between: KVM then takes its deadline away and has its interrupt wait in the local APIC. In this
        // order it is in one of both, or in both; in the other one it would be lost, and maybe all that the guest waits for.
        msrs: get_msrs(vcpu, msrs)?,
        lapic: vcpu.get_lapic().map_err(ioctl("KVM_GET_LAPIC"))?,
        // Last: what is asked for above may be what raises one.
        events: vcpu.get_vcpu_events().map_err(ioctl("KVM_GET_VCPU_EVENTS"))?,
    })
}

/// Makes `vcpu`, which has its CPUID and has never run, what was saved `nanoseconds` ago. The order is KVM's: the local APIC's mode is
/// in the special registers, and its timer's deadline waits for both clock and APIC.
pub(super) fn restore(vcpu: &VcpuFd, state: &VcpuState, nanoseconds: u64) -> Result<(), StateError> {
    vcpu.set_mp_state(state.mp_state).map_err(ioctl("KVM_SET_MP_STATE"))?;
    vcpu.set_regs(&state.regs).map_err(ioctl("KVM_SET_REGS"))?;
    vcpu.set_sregs(&state.sregs).map_err(ioctl("KVM_SET_SREGS"))?;
    // SAFETY: the kernel reads as many bytes as the guest's features take; they are those of `kvm_xsave` unless somebody has
    // asked for more by arch_prctl(2), which nobody here does.
    unsafe { vcpu.set_xsave(&state.xsave) }.map_err(ioctl("KVM_SET_XSAVE"))?;
    vcpu.set_xcrs(&state.xcrs).map_err(ioctl("KVM_SET_XCRS"))?;
    vcpu.set_debug_regs(&state.debug_regs).map_err(ioctl("KVM_SET_DEBUGREGS"))?;
    vcpu.set_lapic(&state.lapic).map_err(ioctl("KVM_SET_LAPIC"))?;
    let ticks = ticks(nanoseconds, state.tsc_khz.unwrap_or(0));
    for msr in &state.msrs {
        let step = if msr.index == MSR_TSC { ticks } else { 0 };
        set_msr(vcpu, kvm_msr_entry { data: msr.data.wrapping_add(step), ..*msr })?;
    }
    Ok(vcpu.set_vcpu_events(&state.events).map_err(ioctl("KVM_SET_VCPU_EVENTS"))?)
}

/// So many ticks of a clock of `khz` are in `nanoseconds`.
fn ticks(nanoseconds: u64, khz: u32) -> u64 {
    let ticks = u128::from(nanoseconds) * u128::from(khz) / 1_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// Those of the registers `indices` that `vcpu` has, in the order in which they are to be set.
fn get_msrs(vcpu: &VcpuFd, indices: &[u32]) -> Result<Vec<kvm_msr_entry>, VmError> {
    let mut indices = indices.to_vec();
    indices.sort_by(|one, other| in_order(*one, *other));
    let mut saved = Vec::with_capacity(indices.len());
    let mut rest = indices.as_slice();
    while !rest.is_empty() {
        let entries: Vec<_> = rest.iter().map(|index| kvm_msr_entry { index: *index, ..Default::default() }).collect();
        let mut msrs = Msrs::from_entries(&entries).map_err(VmError::Cpuid)?;
        // It stops at the first that this vCPU has not.
        let count = vcpu.get_msrs(&mut msrs).map_err(ioctl("KVM_GET_MSRS"))?;
        saved.extend(msrs.as_slice().iter().take(count));
        rest = rest.get(count + 1..).unwrap_or_default();
    }
    Ok(saved)
}

/// The deadline comes last.
fn in_order(one: u32, other: u32) -> Ordering {
    (one == MSR_TSC_DEADLINE).cmp(&(other == MSR_TSC_DEADLINE))
}

/// Sets a register. One that cannot be set may be what it is to be; and one that was zero where this KVM has none was none that the
/// guest uses: KVM has some registers whether the guest has the feature or not.
fn set_msr(vcpu: &VcpuFd, entry: kvm_msr_entry) -> Result<(), StateError> {
    let msrs = Msrs::from_entries(&[entry]).map_err(VmError::Cpuid)?;
    if vcpu.set_msrs(&msrs).map_err(ioctl("KVM_SET_MSRS"))? == 1 {
        return Ok(());
    }
    let mut is = Msrs::from_entries(&[kvm_msr_entry { data: 0, ..entry }]).map_err(VmError::Cpuid)?;
    let count = vcpu.get_msrs(&mut is).map_err(ioctl("KVM_GET_MSRS"))?;
    let is = is.as_slice().first().filter(|_| count == 1).map_or(0, |is| is.data);
    if is == entry.data { Ok(()) } else { Err(StateError::Msr { index: entry.index, value: entry.data }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    /// Who asks for a snapshot has no command line.
    #[test]
    fn what_cannot_be_saved_is_said_by_its_field() {
        let line =
            "the guest runs VMs of its own, which cannot be saved: must have ended them, or be without cpus.nested";
        assert_eq!(StateError::Nested.to_string(), line);
        assert!(in_options(|| StateError::Nested.to_string()).ends_with(" without --cpus nested"));
    }

    #[test]
    fn a_clock_goes_on_by_what_has_passed() {
        assert_eq!(ticks(1_000_000_000, 2_500_000), 2_500_000_000);
        assert_eq!(ticks(3_600_000_000_000, 4_000_000), 14_400_000_000_000);
        assert_eq!((ticks(5, 0), ticks(u64::MAX, u32::MAX)), (0, u64::MAX));
    }

    #[test]
    fn the_deadline_is_set_behind_the_clock() {
        let mut indices = [0x1b, MSR_TSC_DEADLINE, 0xc000_0080, MSR_TSC];
        indices.sort_by(|one, other| in_order(*one, *other));
        assert_eq!(indices, [0x1b, 0xc000_0080, MSR_TSC, MSR_TSC_DEADLINE]);
    }
}
