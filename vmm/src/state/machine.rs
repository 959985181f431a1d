// SPDX-License-Identifier: Apache-2.0
//! What KVM has of a VM: processors, clock, interrupt controllers. KVM's own structures are kept as bytes, as its ABI has them.

use kvm_bindings::{
    kvm_cpuid_entry2, kvm_debugregs, kvm_irqchip, kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_pit_state2,
    kvm_regs, kvm_sregs, kvm_vcpu_events, kvm_xcrs, kvm_xsave,
};
use serde::{Deserialize, Serialize};

/// A VM without its memory and its devices.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineState {
    /// The CPUID table that the vCPUs' own follow from.
    pub cpuid: Vec<kvm_cpuid_entry2>,
    /// Whether the guest has the TSC deadline timer.
    pub tsc_deadline: bool,
    /// When all this was so, in ns since 1970, UTC.
    pub taken_at: u64,
    /// The guest's kvm-clock then, in ns.
    pub clock: u64,
    /// Interrupt controllers and timer, if KVM has them.
    pub controllers: Option<Controllers>,
    /// The vCPUs, in their order.
    pub vcpus: Vec<VcpuState>,
}

/// The interrupt controllers that are KVM's own, and the timer that comes with them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controllers {
    /// Both 8259 and the I/O APIC, by KVM's number (`KVM_IRQCHIP_…`).
    pub chips: [kvm_irqchip; 3],
    /// The 8254.
    pub pit: kvm_pit_state2,
}

/// A processor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VcpuState {
    /// How fast its TSC is, if KVM says.
    pub tsc_khz: Option<u32>,
    /// Whether it runs, halts, or waits to be started.
    pub mp_state: kvm_mp_state,
    /// General registers.
    pub regs: kvm_regs,
    /// Special registers.
    pub sregs: kvm_sregs,
    /// What XSAVE saves.
    pub xsave: Box<kvm_xsave>,
    /// What of that is switched on.
    pub xcrs: kvm_xcrs,
    /// Debug registers.
    pub debug_regs: kvm_debugregs,
    /// Its local APIC.
    pub lapic: kvm_lapic_state,
    /// Model-specific registers, in the order in which they are to be set.
    pub msrs: Vec<kvm_msr_entry>,
    /// Exceptions and interrupts that are under way.
    pub events: kvm_vcpu_events,
}
