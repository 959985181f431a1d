// SPDX-License-Identifier: Apache-2.0
//! The table as a kernel reads it: each way to find out the topology, against each other.

use super::*;
use crate::cpu::model::{self, ModelError};

fn leaf(function: u32, index: u32, words: [u32; 4]) -> kvm_cpuid_entry2 {
    let [eax, ebx, ecx, edx] = words;
    kvm_cpuid_entry2 { function, index, eax, ebx, ecx, edx, ..Default::default() }
}

/// An EPYC with two threads a core, eight of them sharing an L3, as KVM reports it.
fn amd() -> CpuId {
    let mut entries = vec![
        leaf(LEAF_VENDOR, 0, [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
        leaf(LEAF_FEATURES, 0, [0x0080_0f12, 0x0702_0800, 0x7ef8_3203, 0x178b_fbff]),
        leaf(LEAF_TOPOLOGY, 0, [1, 2, 0x100, 7]),
        leaf(LEAF_TOPOLOGY_V2, 0, [1, 2, 0x100, 7]),
        leaf(LEAF_KVM_SIGNATURE, 0, [0x4000_0001, 0, 0, 0]),
        leaf(LEAF_EXTENDED_FEATURES, 0, [0x0080_0f12, 0, 0x0040_03f7, 0x2fd3_fbff]),
        leaf(LEAF_AMD_SIZES, 0, [0x3028, 0, 0x7007, 0]),
        leaf(LEAF_SVM, 0, [1, 0x8000, 0, 0x9]),
        leaf(LEAF_AMD_TOPOLOGY, 0, [7, 0x103, 0x200, 0]),
        leaf(LEAF_AMD_TOPOLOGY_V2, 0, [1, 2, 0x100, 7]),
        leaf(LEAF_AMD_ENCRYPTION, 0, [0x0101_fd3f, 0x4173, 0x1fd, 0x80]),
    ];
    entries.extend(caches(LEAF_AMD_CACHE, [1, 1, 1, 15], 0));
    CpuId::from_entries(&entries).unwrap()
}

/// A Xeon with two threads a core, 64 of them sharing an L3.
fn intel() -> CpuId {
    let mut entries = vec![
        leaf(LEAF_VENDOR, 0, [0x20, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]),
        leaf(LEAF_FEATURES, 0, [0x0006_06a6, 0x0740_0800, 0x7ffe_fbff, 0xbfeb_fbff]),
        leaf(LEAF_TOPOLOGY, 0, [1, 2, 0x100, 7]),
        leaf(LEAF_TOPOLOGY_V2, 0, [1, 2, 0x100, 7]),
        leaf(LEAF_KVM_SIGNATURE, 0, [0x4000_0001, 0, 0, 0]),
        leaf(LEAF_EXTENDED_FEATURES, 0, [0, 0, 0x121, 0x2c10_0800]),
        leaf(LEAF_AMD_SIZES, 0, [0x0030_392e, 0, 0, 0]),
    ];
    entries.extend(caches(LEAF_CACHE, [1, 1, 1, 63], 31));
    CpuId::from_entries(&entries).unwrap()
}

/// Data, instructions, L2, L3 and the end; `sharing` and `cores` are each less one.
fn caches(function: u32, sharing: [u32; 4], cores: u32) -> Vec<kvm_cpuid_entry2> {
    let kinds = [(1, 1), (2, 1), (3, 2), (3, 3)];
    let level = |((kind, level), sharing): ((u32, u32), u32)| kind | level << 5 | 1 << 8 | sharing << 14 | cores << 26;
    let words = kinds.into_iter().zip(sharing).map(level).chain([0]);
    (0..).zip(words).map(|(index, eax)| leaf(function, index, [eax, 0x01c0_003f, 63, 0])).collect()
}

fn get(cpuid: &CpuId, function: u32, index: u32) -> kvm_cpuid_entry2 {
    *cpuid.as_slice().iter().find(|e| e.function == function && e.index == index).unwrap()
}

fn has(cpuid: &CpuId, function: u32) -> bool {
    cpuid.as_slice().iter().any(|e| e.function == function)
}

fn basis(cpus: CpuTopology) -> Basis {
    Basis { cpus, shared_caches: true, nested: true, tsc_deadline: true, tsc_khz: Some(2_000_000) }
}

/// What one vCPU is told.
struct Told {
    cpuid: CpuId,
    cpus: CpuTopology,
    index: u16,
    like_amd: bool,
}

/// Every shape of VM and vCPU that a test looks at, on both vendors.
fn each(check: impl Fn(&Told)) {
    let flat = [1, 2, 3, 16, 64, 65, 128, 255, 288].map(CpuTopology::flat);
    let groups = [(2, 1, 1, 1), (2, 4, 1, 1), (1, 4, 1, 2), (2, 3, 2, 2), (1, 5, 3, 1), (2, 72, 1, 2), (4, 4, 9, 1)];
    let groups =
        groups.map(|(threads, cores, dies, packages)| CpuTopology::new(threads, cores, dies, packages).unwrap());
    for (host, like_amd) in [(amd(), true), (intel(), false)] {
        for cpus in flat.into_iter().chain(groups) {
            let vcpus = u16::try_from(cpus.total()).unwrap();
            for index in [0, 1 % vcpus, vcpus / 2, vcpus - 1] {
                let cpuid = for_vcpu(&host, index, basis(cpus)).unwrap();
                check(&Told { cpuid, cpus, index, like_amd });
            }
        }
    }
}

#[test]
fn all_leaves_name_the_same_apic_id_and_groups() {
    each(|Told { cpuid, cpus, index, like_amd }| {
        let (id, package) = (cpus.apic_id(*index), cpus.threads_per_package());
        let bits = cpus.package_shift();
        let features = get(cpuid, LEAF_FEATURES, 0);
        assert_eq!(features.ebx >> 24, id & 0xff);
        assert_eq!(features.edx & EDX_HTT != 0, package > 1);
        assert_eq!(features.ebx >> 16 & 0xff, (1 << bits).min(255));
        let levels = [0, 1, 2].map(|level| get(cpuid, LEAF_TOPOLOGY, level));
        assert_eq!(levels.map(|level| level.edx), [id; 3]);
        assert_eq!(levels.map(|level| level.ecx), [0x100, 0x201, 2]);
        assert_eq!(levels.map(|level| level.eax), [cpus.core_shift(), bits, 0]);
        assert_eq!(levels.map(|level| level.ebx), [cpus.threads_per_core(), package, 0]);
        assert!(!has(cpuid, LEAF_AMD_TOPOLOGY_V2));
        dies(cpuid, *cpus, id);
        if *like_amd {
            let sizes = get(cpuid, LEAF_AMD_SIZES, 0).ecx;
            assert_eq!((sizes & 0xff, sizes >> 12 & 0xf), ((package - 1).min(255), bits));
            assert_eq!(get(cpuid, LEAF_EXTENDED_FEATURES, 0).ecx & ECX_CMP_LEGACY != 0, package > 1);
            let unit = get(cpuid, LEAF_AMD_TOPOLOGY, 0);
            assert_eq!((unit.eax, unit.ebx >> 8), (id, cpus.threads_per_core() - 1));
            assert_eq!(unit.ebx & 0xff, (id >> cpus.core_shift() & ((1 << (bits - cpus.core_shift())) - 1)) & 0xff);
            let nodes = if (2..=8).contains(&cpus.dies_per_package()) { cpus.dies_per_package() } else { 1 };
            let node = if nodes == 1 { 0 } else { id >> cpus.die_shift() };
            assert_eq!((unit.ecx & 0xff, (unit.ecx >> 8) + 1), (node, nodes));
        } else {
            assert_eq!(get(cpuid, LEAF_AMD_SIZES, 0).ecx, 0, "reserved");
        }
    });
}

/// A kernel would look for a register that only such a VM has.
#[test]
fn an_ordinary_vm_has_no_encrypted_memory() {
    let told = for_vcpu(&amd(), 0, basis(CpuTopology::flat(1))).unwrap();
    let leaf = get(&told, LEAF_AMD_ENCRYPTION, 0);
    assert_eq!([leaf.eax, leaf.ebx, leaf.ecx, leaf.edx], [0; 4]);
}

/// The leaf that knows dies is there if there are any, and says the same of the rest.
fn dies(cpuid: &CpuId, cpus: CpuTopology, id: u32) {
    let last = get(cpuid, LEAF_VENDOR, 0).eax;
    if cpus.dies_per_package() == 1 {
        assert!(last >= LEAF_TOPOLOGY && !has(cpuid, LEAF_TOPOLOGY_V2));
        return;
    }
    assert!(last >= LEAF_TOPOLOGY_V2);
    let levels = [0, 1, 2, 3].map(|level| get(cpuid, LEAF_TOPOLOGY_V2, level));
    assert_eq!(levels.map(|level| level.edx), [id; 4]);
    assert_eq!(levels.map(|level| level.ecx), [0x100, 0x201, 0x502, 3]);
    assert_eq!(levels.map(|level| level.eax), [cpus.core_shift(), cpus.die_shift(), cpus.package_shift(), 0]);
    let threads = [cpus.threads_per_core(), cpus.threads_per_die(), cpus.threads_per_package(), 0];
    assert_eq!(levels.map(|level| level.ebx), threads);
}

/// Linux: the mask of who shares a cache is the APIC id without as many bits as that number needs.
#[test]
fn caches_are_shared_as_the_topology_says() {
    each(|Told { cpuid, cpus, like_amd, .. }| {
        let (function, other) = if *like_amd { (LEAF_AMD_CACHE, LEAF_CACHE) } else { (LEAF_CACHE, LEAF_AMD_CACHE) };
        assert!(!has(cpuid, other), "what the host does not have is not invented");
        let sharing = [0, 1, 2, 3].map(|index| (get(cpuid, function, index).eax >> 14 & 0xfff) + 1);
        let (core, die) = (1 << cpus.core_shift(), 1 << cpus.die_shift());
        assert_eq!(sharing, [core, core, core, die]);
        let kinds = [0, 1, 2, 3, 4].map(|index| get(cpuid, function, index).eax & 0x1ff);
        assert_eq!(kinds, [0x121, 0x122, 0x143, 0x163, 0], "the caches themselves are the host's");
        if !like_amd {
            let cores = (get(cpuid, function, 0).eax >> 26) + 1;
            assert_eq!(cores, (1 << (cpus.package_shift() - cpus.core_shift())).min(64));
            assert_eq!(get(cpuid, function, 4).eax, 0);
        }
    });
}

/// Linux: "sched: CPU #1's llc-sibling CPU #0 is not on the same node!"
#[test]
fn nodes_share_no_cache() {
    let cpus = CpuTopology::new(2, 4, 1, 1).unwrap();
    for (host, function) in [(amd(), LEAF_AMD_CACHE), (intel(), LEAF_CACHE)] {
        let cpuid = for_vcpu(&host, 0, Basis { shared_caches: false, ..basis(cpus) }).unwrap();
        let sharing = [0, 1, 2, 3].map(|index| (get(&cpuid, function, index).eax >> 14 & 0xfff) + 1);
        assert_eq!(sharing, [2; 4]);
    }
}

/// What lets a guest have processors whose ids are beyond 8 bits.
#[test]
fn wide_destinations_are_offered_where_they_are_needed() {
    let host = CpuId::from_entries(&[leaf(LEAF_KVM_FEATURES, 0, [0x0100_7efb, 0, 0, 0])]).unwrap();
    for (vcpus, offered) in [(1, false), (255, false), (256, true), (288, true)] {
        let cpuid = for_vcpu(&host, 0, basis(CpuTopology::flat(vcpus))).unwrap();
        let features = get(&cpuid, LEAF_KVM_FEATURES, 0).eax;
        assert_eq!(
            (features & EAX_EXTENDED_DESTINATIONS != 0, features & !EAX_EXTENDED_DESTINATIONS),
            (offered, 0x0100_7efb)
        );
    }
}

#[test]
fn virtualization_is_the_guests_unless_it_is_switched_off() {
    let with = |host: &CpuId, nested| for_vcpu(host, 0, Basis { nested, ..basis(CpuTopology::flat(2)) }).unwrap();
    for nested in [true, false] {
        assert_eq!(get(&with(&intel(), nested), LEAF_FEATURES, 0).ecx & ECX_VMX != 0, nested);
        let amd = with(&amd(), nested);
        assert_eq!(get(&amd, LEAF_EXTENDED_FEATURES, 0).ecx & ECX_SVM != 0, nested);
        let svm = get(&amd, LEAF_SVM, 0);
        assert_eq!([svm.eax, svm.ebx, svm.ecx, svm.edx] != [0; 4], nested);
    }
}

#[test]
fn what_a_guest_has_never_seen_it_does_not_miss() {
    for host in [intel(), amd()] {
        let without = seen(host.as_slice(), false);
        assert_ne!(without, host.as_slice());
        assert_eq!(seen(host.as_slice(), true), host.as_slice());
        let check = |nested| model::check(&seen(host.as_slice(), nested), &seen(&without, nested));
        assert_eq!(check(false), Ok(()));
        assert!(matches!(check(true), Err(ModelError::Less { .. })));
    }
}

#[test]
fn timer_bits_follow_the_host() {
    let with = |tsc_deadline, tsc_khz| {
        for_vcpu(&amd(), 0, Basis { tsc_deadline, tsc_khz, ..basis(CpuTopology::flat(1)) }).unwrap()
    };
    assert_ne!(get(&with(true, None), LEAF_FEATURES, 0).ecx & ECX_TSC_DEADLINE, 0);
    assert_eq!(get(&with(false, None), LEAF_FEATURES, 0).ecx & ECX_TSC_DEADLINE, 0);
    assert_eq!(get(&with(true, Some(7)), LEAF_KVM_TIMING, 0).eax, 7);
    assert_eq!(get(&with(true, Some(7)), LEAF_KVM_SIGNATURE, 0).eax, LEAF_KVM_TIMING);
}

#[test]
fn what_would_not_be_saved_is_not_there() {
    let words = [2, 0x219c_07ab, 0x1a40_5fe6, 0xbfd1_4410];
    let host = [leaf(LEAF_MORE_FEATURES, 0, words), leaf(LEAF_MORE_FEATURES, 1, words)];
    let table = without_unsaved(CpuId::from_entries(&host).unwrap());
    let [eax, ebx, _, edx] = words;
    assert_eq!(table.as_slice(), [leaf(LEAF_MORE_FEATURES, 0, [eax, ebx, 0x1a40_5f66, edx]), host[1]]);
}
