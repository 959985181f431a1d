// SPDX-License-Identifier: Apache-2.0
//! CPUID: what KVM supports, with the topology of this VM written over the host's.
//!
//! The first two cache levels are a core's own, the others are its die's, unless that has processors of several nodes. Every leaf that a kernel may read this from says the same;
//! then Linux accepts parallel bring-up of secondary CPUs.
//! Source: Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E; `Documentation/virt/kvm/x86/cpuid.rst`.

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

use super::topology::CpuTopology;

const LEAF_VENDOR: u32 = 0x0;
const LEAF_FEATURES: u32 = 0x1;
const LEAF_CACHE: u32 = 0x4;
const LEAF_MORE_FEATURES: u32 = 0x7;
const LEAF_TOPOLOGY: u32 = 0xb;
const LEAF_TOPOLOGY_V2: u32 = 0x1f;
const LEAF_KVM_TIMING: u32 = 0x4000_0010;
const LEAF_KVM_SIGNATURE: u32 = 0x4000_0000;
const LEAF_KVM_FEATURES: u32 = 0x4000_0001;
const LEAF_EXTENDED_FEATURES: u32 = 0x8000_0001;
const LEAF_AMD_SIZES: u32 = 0x8000_0008;
const LEAF_SVM: u32 = 0x8000_000a;
const LEAF_AMD_CACHE: u32 = 0x8000_001d;
const LEAF_AMD_TOPOLOGY: u32 = 0x8000_001e;
const LEAF_AMD_ENCRYPTION: u32 = 0x8000_001f;
const LEAF_AMD_TOPOLOGY_V2: u32 = 0x8000_0026;

const ECX_VMX: u32 = 1 << 5;
const ECX_X2APIC: u32 = 1 << 21;
const ECX_TSC_DEADLINE: u32 = 1 << 24;
const ECX_HYPERVISOR: u32 = 1 << 31;
/// Shadow stacks.
const ECX_SHSTK: u32 = 1 << 7;
/// `KVM_FEATURE_MSI_EXT_DEST_ID`: interrupts from devices can have destinations of 15 bits.
const EAX_EXTENDED_DESTINATIONS: u32 = 1 << 15;
const EDX_HTT: u32 = 1 << 28;
/// AMD: the logical processors of a package are cores, not threads.
const ECX_CMP_LEGACY: u32 = 1 << 1;
const ECX_SVM: u32 = 1 << 2;
/// `EBX` of the vendor leaf: the first letters of `AuthenticAMD` and `HygonGenuine`.
const VENDORS_LIKE_AMD: [u32; 2] = [u32::from_le_bytes(*b"Auth"), u32::from_le_bytes(*b"Hygo")];

/// What the table depends on besides the vCPU's index.
#[derive(Debug, Clone, Copy)]
pub struct Basis {
    /// All vCPUs of the VM, in groups.
    pub cpus: CpuTopology,
    /// Whether a die's vCPUs share its caches: not if they are on several nodes, which no processor has.
    pub shared_caches: bool,
    /// Whether the guest may run VMs of its own, where the host can.
    pub nested: bool,
    /// Whether KVM has the TSC deadline timer, which spares the guest an APIC timer calibration.
    pub tsc_deadline: bool,
    /// Frequency of the guest's TSC, if KVM says.
    pub tsc_khz: Option<u32>,
}

impl Basis {
    /// APIC ids that a package has room for.
    fn ids(self) -> u32 {
        1 << self.cpus.package_shift()
    }

    /// Whether a package has more than one thread.
    fn is_multi(self) -> bool {
        self.cpus.threads_per_package() > 1
    }
}

/// The table that KVM supports, without what a snapshot would not have. The pointer to a shadow stack is none of KVM's model-specific
/// registers, nor in what XSAVE saves: KVM gives it away by `KVM_GET_ONE_REG` alone. All of the rest of CET is in the former, so
/// indirect branch tracking stays.
#[must_use]
pub fn without_unsaved(mut supported: CpuId) -> CpuId {
    let mut entries = supported.as_mut_slice().iter_mut();
    if let Some(features) = entries.find(|entry| (entry.function, entry.index) == (LEAF_MORE_FEATURES, 0)) {
        features.ecx &= !ECX_SHSTK;
    }
    supported
}

/// What a guest sees of `table` that may run VMs if they may be `nested`. What it has never seen it cannot miss.
#[must_use]
pub fn seen(table: &[kvm_cpuid_entry2], nested: bool) -> Vec<kvm_cpuid_entry2> {
    let mut table = table.to_vec();
    if !nested {
        table.iter_mut().for_each(hide_virtualization);
    }
    table
}

/// The table for vCPU `index`, from the one that KVM supports.
pub fn for_vcpu(supported: &CpuId, index: u16, basis: Basis) -> Result<CpuId, vmm_sys_util::fam::Error> {
    let entries = supported.as_slice();
    let like_amd = entries.iter().any(|e| e.function == LEAF_VENDOR && VENDORS_LIKE_AMD.contains(&e.ebx));
    let mut table = Vec::with_capacity(entries.len() + 4);
    for entry in entries.iter().filter(|entry| !is_replaced(entry.function)) {
        let mut entry = *entry;
        patch(&mut entry, index, basis);
        if like_amd {
            patch_amd(&mut entry, index, basis);
        }
        if !basis.nested {
            hide_virtualization(&mut entry);
        }
        table.push(entry);
    }
    let cpus = basis.cpus;
    let id = cpus.apic_id(index);
    let threads = (LEVEL_SMT, cpus.core_shift(), cpus.threads_per_core());
    let package = |kind| (kind, cpus.package_shift(), cpus.threads_per_package());
    table.extend(extended_topology(LEAF_TOPOLOGY, id, &[threads, package(LEVEL_CORE)]));
    if cpus.dies_per_package() > 1 {
        let cores = (LEVEL_CORE, cpus.die_shift(), cpus.threads_per_die());
        table.extend(extended_topology(LEAF_TOPOLOGY_V2, id, &[threads, cores, package(LEVEL_DIE)]));
    }
    if let Some(khz) = basis.tsc_khz {
        push_timing(&mut table, khz);
    }
    CpuId::from_entries(&table)
}

/// Leaves that describe the host's own topology and are rebuilt, or left out so that the others speak.
fn is_replaced(function: u32) -> bool {
    matches!(function, LEAF_TOPOLOGY | LEAF_TOPOLOGY_V2 | LEAF_AMD_TOPOLOGY_V2 | LEAF_KVM_TIMING)
}

/// What is the same for every vendor, and Intel's.
fn patch(entry: &mut kvm_cpuid_entry2, index: u16, basis: Basis) {
    let id = basis.cpus.apic_id(index);
    match entry.function {
        // The topology leaf is there, whatever the host's processor has; the other one only where it says more.
        LEAF_VENDOR => {
            let last = if basis.cpus.dies_per_package() > 1 { LEAF_TOPOLOGY_V2 } else { LEAF_TOPOLOGY };
            entry.eax = entry.eax.max(last);
        }
        LEAF_FEATURES => {
            entry.ebx = entry.ebx & 0x0000_ffff | (id & 0xff) << 24 | basis.ids().min(255) << 16;
            entry.ecx |= ECX_X2APIC | ECX_HYPERVISOR;
            entry.ecx = set(entry.ecx, ECX_TSC_DEADLINE, basis.tsc_deadline);
            entry.edx = set(entry.edx, EDX_HTT, basis.is_multi());
        }
        // Bits 31..26: cores in the package less one.
        LEAF_CACHE if is_cache(entry) => {
            let cores = ((basis.ids() >> basis.cpus.core_shift()) - 1).min(0x3f);
            entry.eax = with_sharing(entry.eax, basis) & 0x03ff_ffff | cores << 26;
        }
        LEAF_KVM_FEATURES if basis.cpus.needs_wide_ids() => entry.eax |= EAX_EXTENDED_DESTINATIONS,
        LEAF_KVM_SIGNATURE if basis.tsc_khz.is_some() => entry.eax = entry.eax.max(LEAF_KVM_TIMING),
        _ => {}
    }
}

/// What only AMD's processors have, and those made like them; to Intel's the same bits are reserved.
fn patch_amd(entry: &mut kvm_cpuid_entry2, index: u16, basis: Basis) {
    let id = basis.cpus.apic_id(index);
    match entry.function {
        LEAF_EXTENDED_FEATURES => entry.ecx = set(entry.ecx, ECX_CMP_LEGACY, basis.is_multi()),
        // ECX 7..0: threads in the package less one; 15..12: size of the APIC id's part in a package.
        LEAF_AMD_SIZES => {
            let threads = (basis.cpus.threads_per_package() - 1).min(0xff);
            entry.ecx = entry.ecx & !0xf0ff | threads | basis.cpus.package_shift().min(0xf) << 12;
        }
        LEAF_AMD_CACHE if is_cache(entry) => entry.eax = with_sharing(entry.eax, basis),
        LEAF_AMD_TOPOLOGY => (entry.eax, entry.ebx, entry.ecx, entry.edx) = amd_topology(id, basis.cpus),
        // KVM says what VMs of any type can have. One of an ordinary type has no encrypted memory, and no register that says whether
        // it is on, which Linux reads before it can take an exception.
        LEAF_AMD_ENCRYPTION => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
        _ => {}
    }
}

/// The id; in EBX 7..0 the core, 15..8 its threads less one; in ECX 7..0 the node, 10..8 the package's nodes less one. A die is a
/// node, as far as there are bits for it.
fn amd_topology(id: u32, cpus: CpuTopology) -> (u32, u32, u32, u32) {
    const MOST_NODES: u32 = 8;
    let core = (id >> cpus.core_shift()) & ((1 << (cpus.package_shift() - cpus.core_shift())) - 1);
    let dies = cpus.dies_per_package();
    let nodes = if dies <= MOST_NODES { (id >> cpus.die_shift() & 0xff) | (dies - 1) << 8 } else { 0 };
    let nodes = if dies == 1 { 0 } else { nodes };
    (id, core & 0xff | (cpus.threads_per_core() - 1) << 8, nodes, 0)
}

/// Whether a subleaf of a cache leaf describes a cache, and not their end.
fn is_cache(entry: &kvm_cpuid_entry2) -> bool {
    entry.eax & 0x1f != 0
}

/// EAX of a cache's subleaf, the same with both vendors: in bits 25..14 how many APIC ids share it, less one.
fn with_sharing(eax: u32, basis: Basis) -> u32 {
    let level = eax >> 5 & 0x7;
    let own = level < 3 || !basis.shared_caches;
    let bits = if own { basis.cpus.core_shift() } else { basis.cpus.die_shift() };
    let sharing = ((1 << bits) - 1).min(0xfff);
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

const LEVEL_SMT: u32 = 1;
const LEVEL_CORE: u32 = 2;
const LEVEL_DIE: u32 = 5;

/// The subleaves of an extended topology leaf for the APIC id `id`: a kind, a shift and a number of threads for each level, and the end.
fn extended_topology(function: u32, id: u32, levels: &[(u32, u32, u32)]) -> Vec<kvm_cpuid_entry2> {
    const SIGNIFICANT_INDEX: u32 = 1;
    let level = |(index, (kind, shift, count)): (u32, (u32, u32, u32))| kvm_cpuid_entry2 {
        function,
        index,
        flags: SIGNIFICANT_INDEX,
        eax: shift,
        ebx: count,
        ecx: kind << 8 | index,
        edx: id,
        ..Default::default()
    };
    (0..).zip(levels.iter().copied().chain([(0, 0, 0)])).map(level).collect()
}

/// TSC frequency for guests that ask the hypervisor leaf 0x40000010 instead of calibrating.
fn push_timing(entries: &mut Vec<kvm_cpuid_entry2>, tsc_khz: u32) {
    const APIC_BUS_KHZ: u32 = 1_000_000;
    entries.push(kvm_cpuid_entry2 { function: LEAF_KVM_TIMING, eax: tsc_khz, ebx: APIC_BUS_KHZ, ..Default::default() });
}

#[cfg(test)]
mod tests;
