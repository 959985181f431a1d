// SPDX-License-Identifier: Apache-2.0
//! CPUID: what KVM supports, with the topology of this VM written over the host's.
//!
//! One package, one thread a core, APIC id = vCPU index. Every leaf that a kernel may read the topology from says
//! the same; then Linux accepts parallel bring-up of secondary CPUs.
//! Source: Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E; `Documentation/virt/kvm/x86/cpuid.rst`.

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

const LEAF_FEATURES: u32 = 0x1;
const LEAF_CACHE: u32 = 0x4;
const LEAF_TOPOLOGY: u32 = 0xb;
const LEAF_TOPOLOGY_V2: u32 = 0x1f;
const LEAF_KVM_TIMING: u32 = 0x4000_0010;
const LEAF_KVM_SIGNATURE: u32 = 0x4000_0000;
const LEAF_AMD_SIZES: u32 = 0x8000_0008;
const LEAF_AMD_TOPOLOGY: u32 = 0x8000_001e;
const LEAF_AMD_TOPOLOGY_V2: u32 = 0x8000_0026;

const ECX_X2APIC: u32 = 1 << 21;
const ECX_TSC_DEADLINE: u32 = 1 << 24;
const ECX_HYPERVISOR: u32 = 1 << 31;
const EDX_HTT: u32 = 1 << 28;

/// What the table depends on besides the vCPU's index.
#[derive(Debug, Clone, Copy)]
pub struct Topology {
    /// Number of vCPUs in the VM.
    pub vcpus: u8,
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
}

/// The table for vCPU `index`, from the one that KVM supports.
pub fn for_vcpu(supported: &CpuId, index: u8, topology: Topology) -> Result<CpuId, vmm_sys_util::fam::Error> {
    let mut entries = Vec::with_capacity(supported.as_slice().len() + 4);
    for entry in supported.as_slice() {
        if !is_topology(entry.function) {
            entries.push(patched(*entry, index, topology));
        }
    }
    entries.extend(extended_topology(LEAF_TOPOLOGY, index, topology));
    if let Some(khz) = topology.tsc_khz {
        push_timing(&mut entries, khz);
    }
    CpuId::from_entries(&entries)
}

/// Leaves that describe the host's own topology and are rebuilt, or left out so that the others speak.
fn is_topology(function: u32) -> bool {
    matches!(function, LEAF_TOPOLOGY | LEAF_TOPOLOGY_V2 | LEAF_AMD_TOPOLOGY_V2 | LEAF_KVM_TIMING)
}

fn patched(mut entry: kvm_cpuid_entry2, index: u8, topology: Topology) -> kvm_cpuid_entry2 {
    let (id, count) = (u32::from(index), u32::from(topology.vcpus));
    match entry.function {
        LEAF_FEATURES => {
            entry.ebx = entry.ebx & 0x0000_ffff | id << 24 | count.next_power_of_two().min(255) << 16;
            entry.ecx |= ECX_X2APIC | ECX_HYPERVISOR;
            entry.ecx = set(entry.ecx, ECX_TSC_DEADLINE, topology.tsc_deadline);
            entry.edx = set(entry.edx, EDX_HTT, count > 1);
        }
        // EAX 31..26: cores in the package less one; 25..14: threads sharing the cache less one, which for the
        // first two levels is none but the core's own.
        LEAF_CACHE if entry.eax & 0x1f != 0 => {
            let shared = if entry.eax >> 5 & 0x7 < 3 { 0 } else { count.next_power_of_two() - 1 };
            let cores = (count.next_power_of_two() - 1).min(0x3f);
            entry.eax = entry.eax & 0x3fff | shared << 14 | cores << 26;
        }
        // ECX 7..0: threads in the package less one; 15..12: size of the APIC id's core part.
        LEAF_AMD_SIZES => entry.ecx = entry.ecx & !0xf0ff | (count - 1) | topology.core_bits() << 12,
        LEAF_AMD_TOPOLOGY => {
            entry.eax = id;
            entry.ebx = id;
            entry.ecx = 0;
            entry.edx = 0;
        }
        LEAF_KVM_SIGNATURE if topology.tsc_khz.is_some() => entry.eax = entry.eax.max(LEAF_KVM_TIMING),
        _ => {}
    }
    entry
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
mod tests {
    use super::*;

    fn leaf(function: u32, index: u32, words: [u32; 4]) -> kvm_cpuid_entry2 {
        let [eax, ebx, ecx, edx] = words;
        kvm_cpuid_entry2 { function, index, eax, ebx, ecx, edx, ..Default::default() }
    }

    fn host() -> CpuId {
        CpuId::from_entries(&[
            leaf(LEAF_FEATURES, 0, [0x0080_0f12, 0x0702_0800, 0, 0]),
            leaf(LEAF_TOPOLOGY, 0, [1, 2, 0x100, 7]),
            leaf(LEAF_TOPOLOGY_V2, 0, [1, 2, 0x100, 7]),
            leaf(LEAF_KVM_SIGNATURE, 0, [0x4000_0001, 0, 0, 0]),
            leaf(LEAF_AMD_SIZES, 0, [0x3028, 0, 0x7007, 0]),
            leaf(LEAF_AMD_TOPOLOGY, 0, [7, 0x103, 0x200, 0]),
        ])
        .unwrap()
    }

    fn get(cpuid: &CpuId, function: u32, index: u32) -> kvm_cpuid_entry2 {
        *cpuid.as_slice().iter().find(|e| e.function == function && e.index == index).unwrap()
    }

    /// Every leaf must name the same APIC id and the same number of cores.
    #[test]
    fn all_topology_leaves_agree() {
        for vcpus in [1u8, 2, 3, 16, 128, 255] {
            let topology = Topology { vcpus, tsc_deadline: true, tsc_khz: Some(2_000_000) };
            for index in [0, vcpus / 2, vcpus - 1] {
                let cpuid = for_vcpu(&host(), index, topology).unwrap();
                let id = u32::from(index);
                assert_eq!(get(&cpuid, LEAF_FEATURES, 0).ebx >> 24, id);
                assert_eq!(get(&cpuid, LEAF_TOPOLOGY, 0).edx, id);
                assert_eq!(get(&cpuid, LEAF_TOPOLOGY, 1).edx, id);
                assert_eq!(get(&cpuid, LEAF_AMD_TOPOLOGY, 0).eax, id);
                let cores = get(&cpuid, LEAF_TOPOLOGY, 1);
                assert_eq!(cores.ebx, u32::from(vcpus));
                assert!(1u32 << cores.eax >= u32::from(vcpus));
                let sizes = get(&cpuid, LEAF_AMD_SIZES, 0).ecx;
                assert_eq!((sizes & 0xff, sizes >> 12 & 0xf), (u32::from(vcpus) - 1, cores.eax));
                assert!(!cpuid.as_slice().iter().any(|e| e.function == LEAF_TOPOLOGY_V2));
            }
        }
    }

    #[test]
    fn timer_bits_follow_the_host() {
        let with = |tsc_deadline, tsc_khz| for_vcpu(&host(), 0, Topology { vcpus: 1, tsc_deadline, tsc_khz }).unwrap();
        assert_ne!(get(&with(true, None), LEAF_FEATURES, 0).ecx & ECX_TSC_DEADLINE, 0);
        assert_eq!(get(&with(false, None), LEAF_FEATURES, 0).ecx & ECX_TSC_DEADLINE, 0);
        assert_eq!(get(&with(true, Some(7)), LEAF_KVM_TIMING, 0).eax, 7);
        assert_eq!(get(&with(true, Some(7)), LEAF_KVM_SIGNATURE, 0).eax, LEAF_KVM_TIMING);
    }
}
