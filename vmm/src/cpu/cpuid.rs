// SPDX-License-Identifier: Apache-2.0
//! CPUID: what KVM supports, with the topology of this VM written over the host's.
//!
//! One package, one thread a core, APIC id = vCPU index; the first two cache levels are a core's own, the others are everybody's.
//! Every leaf that a kernel may read this from says the same; then Linux accepts parallel bring-up of secondary CPUs.
//! Source: Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E; `Documentation/virt/kvm/x86/cpuid.rst`.

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

const LEAF_VENDOR: u32 = 0x0;
const LEAF_FEATURES: u32 = 0x1;
const LEAF_CACHE: u32 = 0x4;
const LEAF_TOPOLOGY: u32 = 0xb;
const LEAF_TOPOLOGY_V2: u32 = 0x1f;
const LEAF_KVM_TIMING: u32 = 0x4000_0010;
const LEAF_KVM_SIGNATURE: u32 = 0x4000_0000;
const LEAF_EXTENDED_FEATURES: u32 = 0x8000_0001;
const LEAF_AMD_SIZES: u32 = 0x8000_0008;
const LEAF_SVM: u32 = 0x8000_000a;
const LEAF_AMD_CACHE: u32 = 0x8000_001d;
const LEAF_AMD_TOPOLOGY: u32 = 0x8000_001e;
const LEAF_AMD_TOPOLOGY_V2: u32 = 0x8000_0026;

const ECX_VMX: u32 = 1 << 5;
const ECX_X2APIC: u32 = 1 << 21;
const ECX_TSC_DEADLINE: u32 = 1 << 24;
const ECX_HYPERVISOR: u32 = 1 << 31;
const EDX_HTT: u32 = 1 << 28;
/// AMD: the logical processors of a package are cores, not threads.
const ECX_CMP_LEGACY: u32 = 1 << 1;
const ECX_SVM: u32 = 1 << 2;
/// `EBX` of the vendor leaf: the first letters of `AuthenticAMD` and `HygonGenuine`.
const VENDORS_LIKE_AMD: [u32; 2] = [u32::from_le_bytes(*b"Auth"), u32::from_le_bytes(*b"Hygo")];

/// What the table depends on besides the vCPU's index.
#[derive(Debug, Clone, Copy)]
pub struct Topology {
    /// Number of vCPUs in the VM.
    pub vcpus: u8,
    /// Whether the guest may run VMs of its own, where the host can.
    pub nested: bool,
    /// Whether KVM has the TSC deadline timer, which spares the guest an APIC timer calibration.
    pub tsc_deadline: bool,
    /// Frequency of the guest's TSC, if KVM says.
    pub tsc_khz: Option<u32>,
}

impl Topology {
    /// Bits of an APIC id that number the cores of the package.
    fn core_bits(self) -> u32 {
        u32::from(self.vcpus).next_power_of_two().trailing_zeros()
    }

    /// APIC ids that a package has room for.
    fn ids(self) -> u32 {
        u32::from(self.vcpus).next_power_of_two()
    }
}

/// The table for vCPU `index`, from the one that KVM supports.
pub fn for_vcpu(supported: &CpuId, index: u8, topology: Topology) -> Result<CpuId, vmm_sys_util::fam::Error> {
    let entries = supported.as_slice();
    let like_amd = entries.iter().any(|e| e.function == LEAF_VENDOR && VENDORS_LIKE_AMD.contains(&e.ebx));
    let mut table = Vec::with_capacity(entries.len() + 4);
    for entry in entries.iter().filter(|entry| !is_replaced(entry.function)) {
        let mut entry = *entry;
        patch(&mut entry, index, topology);
        if like_amd {
            patch_amd(&mut entry, index, topology);
        }
        if !topology.nested {
            hide_virtualization(&mut entry);
        }
        table.push(entry);
    }
    table.extend(extended_topology(LEAF_TOPOLOGY, index, topology));
    if let Some(khz) = topology.tsc_khz {
        push_timing(&mut table, khz);
    }
    CpuId::from_entries(&table)
}

/// Leaves that describe the host's own topology and are rebuilt, or left out so that the others speak.
fn is_replaced(function: u32) -> bool {
    matches!(function, LEAF_TOPOLOGY | LEAF_TOPOLOGY_V2 | LEAF_AMD_TOPOLOGY_V2 | LEAF_KVM_TIMING)
}

/// What is the same for every vendor, and Intel's.
fn patch(entry: &mut kvm_cpuid_entry2, index: u8, topology: Topology) {
    let id = u32::from(index);
    match entry.function {
        // The topology leaf is there, whatever the host's processor has.
        LEAF_VENDOR => entry.eax = entry.eax.max(LEAF_TOPOLOGY),
        LEAF_FEATURES => {
            entry.ebx = entry.ebx & 0x0000_ffff | id << 24 | topology.ids().min(255) << 16;
            entry.ecx |= ECX_X2APIC | ECX_HYPERVISOR;
            entry.ecx = set(entry.ecx, ECX_TSC_DEADLINE, topology.tsc_deadline);
            entry.edx = set(entry.edx, EDX_HTT, topology.vcpus > 1);
        }
        // Bits 31..26: cores in the package less one.
        LEAF_CACHE if is_cache(entry) => {
            let cores = (topology.ids() - 1).min(0x3f);
            entry.eax = with_sharing(entry.eax, topology) & 0x03ff_ffff | cores << 26;
        }
        LEAF_KVM_SIGNATURE if topology.tsc_khz.is_some() => entry.eax = entry.eax.max(LEAF_KVM_TIMING),
        _ => {}
    }
}

/// What only AMD's processors have, and those made like them; to Intel's the same bits are reserved.
fn patch_amd(entry: &mut kvm_cpuid_entry2, index: u8, topology: Topology) {
    let id = u32::from(index);
    match entry.function {
        LEAF_EXTENDED_FEATURES => entry.ecx = set(entry.ecx, ECX_CMP_LEGACY, topology.vcpus > 1),
        // ECX 7..0: threads in the package less one; 15..12: size of the APIC id's core part.
        LEAF_AMD_SIZES => {
            entry.ecx = entry.ecx & !0xf0ff | (u32::from(topology.vcpus) - 1) | topology.core_bits() << 12;
        }
        LEAF_AMD_CACHE if is_cache(entry) => entry.eax = with_sharing(entry.eax, topology),
        // EBX 15..8: threads of a core less one; ECX 10..8: nodes of the package less one.
        LEAF_AMD_TOPOLOGY => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (id, id, 0, 0),
        _ => {}
    }
}

/// Whether a subleaf of a cache leaf describes a cache, and not their end.
fn is_cache(entry: &kvm_cpuid_entry2) -> bool {
    entry.eax & 0x1f != 0
}

/// EAX of a cache's subleaf, the same with both vendors: in bits 25..14 how many APIC ids share it, less one.
fn with_sharing(eax: u32, topology: Topology) -> u32 {
    let level = eax >> 5 & 0x7;
    let sharing = if level < 3 { 0 } else { topology.ids() - 1 };
    eax & !0x03ff_c000 | sharing << 14
}

/// The guest's processors cannot run VMs.
fn hide_virtualization(entry: &mut kvm_cpuid_entry2) {
    match entry.function {
        LEAF_FEATURES => entry.ecx &= !ECX_VMX,
        LEAF_EXTENDED_FEATURES => entry.ecx &= !ECX_SVM,
        LEAF_SVM => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        _ => {}
    }
}

fn set(word: u32, bit: u32, on: bool) -> u32 {
    if on { word | bit } else { word & !bit }
}

/// The three subleaves of an extended topology leaf: threads of a core, cores of the package, end.
fn extended_topology(function: u32, index: u8, topology: Topology) -> [kvm_cpuid_entry2; 3] {
    const SIGNIFICANT_INDEX: u32 = 1;
    const LEVEL_SMT: u32 = 1;
    const LEVEL_CORE: u32 = 2;
    let level = |subleaf: u32, shift: u32, count: u32, kind: u32| kvm_cpuid_entry2 {
        function,
        index: subleaf,
        flags: SIGNIFICANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | subleaf,
        edx: u32::from(index),
        ..Default::default()
    };
    [
        level(0, 0, 1, LEVEL_SMT),
        level(1, topology.core_bits(), u32::from(topology.vcpus), LEVEL_CORE),
        level(2, 0, 0, 0),
    ]
}

/// TSC frequency for guests that ask the hypervisor leaf 0x40000010 instead of calibrating.
fn push_timing(entries: &mut Vec<kvm_cpuid_entry2>, tsc_khz: u32) {
    const APIC_BUS_KHZ: u32 = 1_000_000;
    entries.push(kvm_cpuid_entry2 { function: LEAF_KVM_TIMING, eax: tsc_khz, ebx: APIC_BUS_KHZ, ..Default::default() });
}

#[cfg(test)]
mod tests;
