// SPDX-License-Identifier: Apache-2.0
//! CPUID as a guest sees it: a guest of two instructions asks, on every vCPU of VMs of several shapes, and all leaves that tell
//! of the topology must tell the same. The processors are this host's, one of AMD's and one of Intel's.
//!
//! Any KVM that opens runs that guest; where none does, the tests say so and count as ignored.
#![expect(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

use std::collections::BTreeSet;
use std::process::ExitCode;

use flatboot::bits::low32;
use flatboot::cpu::cpuid::{Basis, for_vcpu};
use flatboot::cpu::topology::CpuTopology;
use flatboot::memory::{Backing, GpaRange, Slot, guest};
use flatboot::vm;
use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2, kvm_regs};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd};
use libtest_mimic::{Arguments, Failed, Trial};
use vm_memory::{Bytes, GuestAddress};

/// `cpuid; hlt`, in the mode of a reset.
const CODE: [u8; 3] = [0x0f, 0xa2, 0xf4];
const ENTRY: u64 = 0x1000;
const MEMORY: u64 = 0x10000;

/// Threads of a core, cores of a die, dies of a package, packages.
const SHAPES: [[u16; 4]; 5] = [[1, 1, 1, 1], [1, 3, 1, 1], [2, 4, 1, 1], [1, 5, 3, 1], [2, 3, 2, 2]];

/// EAX, EBX, ECX and EDX.
type Words = [u32; 4];
/// The table that KVM supports, or would on another processor.
type Supported = fn(&Kvm) -> CpuId;

fn main() -> ExitCode {
    let missing = vm::open_kvm().err();
    let processors: [(&str, Supported); 3] = [("this host's", ours), ("AMD's", amd), ("Intel's", intel)];
    let trials = processors.into_iter().map(|(whose, supported)| {
        let name = format!("CPUID of a processor like {whose}: all leaves agree");
        if let Some(error) = &missing {
            eprintln!("SKIPPED: {name}: {error}");
        }
        Trial::test(name, move || every_shape(supported)).with_ignored_flag(missing.is_some())
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn ours(kvm: &Kvm) -> CpuId {
    kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).unwrap()
}

fn leaf(function: u32, [eax, ebx, ecx, edx]: Words) -> kvm_cpuid_entry2 {
    kvm_cpuid_entry2 { function, eax, ebx, ecx, edx, ..Default::default() }
}

/// An EPYC with two threads a core, eight of which share an L3.
fn amd(_: &Kvm) -> CpuId {
    let mut entries = vec![
        leaf(0, [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
        leaf(1, [0x0080_0f12, 0x0702_0800, 0x7ef8_3203, 0x178b_fbff]),
        leaf(0x8000_0000, [0x8000_001e, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
        leaf(0x8000_0001, [0x0080_0f12, 0, 0x0040_03f7, 0x2fd3_fbff]),
        leaf(0x8000_0008, [0x3028, 0, 0x7007, 0]),
        leaf(0x8000_001e, [7, 0x103, 0x200, 0]),
    ];
    entries.extend(caches(0x8000_001d, [1, 1, 1, 15], 0));
    CpuId::from_entries(&entries).unwrap()
}

/// A Xeon with two threads a core, 64 of which share an L3.
fn intel(_: &Kvm) -> CpuId {
    let mut entries = vec![
        leaf(0, [0x20, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]),
        leaf(1, [0x0006_06a6, 0x0740_0800, 0x7ffe_fbff, 0xbfeb_fbff]),
        leaf(0x8000_0000, [0x8000_0008, 0, 0, 0]),
        leaf(0x8000_0001, [0, 0, 0x121, 0x2c10_0800]),
        leaf(0x8000_0008, [0x392e, 0, 0, 0]),
    ];
    entries.extend(caches(4, [1, 1, 1, 63], 31));
    CpuId::from_entries(&entries).unwrap()
}

/// Data, instructions, L2, L3 and the end; `sharing` and `cores` are each less one.
fn caches(function: u32, sharing: [u32; 4], cores: u32) -> Vec<kvm_cpuid_entry2> {
    const SIGNIFICANT_INDEX: u32 = 1;
    let kinds = [(1, 1), (2, 1), (3, 2), (3, 3)];
    let level = |((kind, level), sharing): ((u32, u32), u32)| kind | level << 5 | 1 << 8 | sharing << 14 | cores << 26;
    let words = kinds.into_iter().zip(sharing).map(level).chain([0]);
    let entry = |(index, eax)| kvm_cpuid_entry2 {
        index,
        flags: SIGNIFICANT_INDEX,
        ..leaf(function, [eax, 0x01c0_003f, 63, 0])
    };
    (0..).zip(words).map(entry).collect()
}

/// A vCPU that is asked.
struct Asked(VcpuFd);

impl Asked {
    fn leaf(&mut self, function: u32, index: u32) -> Result<Words, Failed> {
        let (rax, rcx) = (function.into(), index.into());
        self.0.set_regs(&kvm_regs { rip: ENTRY, rflags: 2, rax, rcx, ..Default::default() })?;
        loop {
            match self.0.run() {
                Ok(VcpuExit::Hlt) => break,
                Ok(VcpuExit::Intr) => {}
                Ok(other) => return Err(format!("leaf {function:#x}: {other:?}").into()),
                Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
                Err(error) => return Err(format!("leaf {function:#x}: {error}").into()),
            }
        }
        let regs = self.0.get_regs()?;
        Ok([regs.rax, regs.rbx, regs.rcx, regs.rdx].map(low32))
    }

    /// The subleaves of `function` up to the first that is `over`, of which there are few.
    fn leaves(&mut self, function: u32, over: fn(&Words) -> bool) -> Result<Vec<Words>, Failed> {
        let mut found = Vec::new();
        for index in 0..8 {
            let words = self.leaf(function, index)?;
            if over(&words) {
                break;
            }
            found.push(words);
        }
        Ok(found)
    }
}

/// What a vCPU says of itself.
#[derive(Debug)]
struct Said {
    like_amd: bool,
    /// Leaf 1.
    features: Words,
    /// Threads, then the package, leaf 0xb.
    topology: Vec<Words>,
    /// The same with dies between, leaf 0x1f, if there is such a leaf.
    dies: Vec<Words>,
    /// Leaf 4 of Intel's, 0x8000001d of AMD's.
    caches: Vec<Words>,
    /// Leaf 0x80000008.
    sizes: Words,
    /// Leaf 0x8000001e of AMD's.
    unit: Option<Words>,
}

impl Said {
    fn by(vcpu: &mut Asked) -> Result<Self, Failed> {
        let [last, vendor, ..] = vcpu.leaf(0, 0)?;
        let [last_extended, ..] = vcpu.leaf(0x8000_0000, 0)?;
        let like_amd = [*b"Auth", *b"Hygo"].map(u32::from_le_bytes).contains(&vendor);
        let no_level: fn(&Words) -> bool = |[_, _, ecx, _]| matches!(ecx >> 8 & 0xff, 0);
        let no_cache: fn(&Words) -> bool = |[eax, ..]| matches!(eax & 0x1f, 0);
        let cache = if like_amd { 0x8000_001d } else { 4 };
        let has_caches = cache <= if like_amd { last_extended } else { last };
        Ok(Self {
            like_amd,
            features: vcpu.leaf(1, 0)?,
            topology: vcpu.leaves(0xb, no_level)?,
            dies: if last >= 0x1f { vcpu.leaves(0x1f, no_level)? } else { Vec::new() },
            caches: if has_caches { vcpu.leaves(cache, no_cache)? } else { Vec::new() },
            sizes: vcpu.leaf(0x8000_0008, 0)?,
            unit: (like_amd && last_extended >= 0x8000_001e).then(|| vcpu.leaf(0x8000_001e, 0)).transpose()?,
        })
    }

    /// How far to shift an id for the number of the core, of the die and of the package.
    fn shifts(&self) -> [u32; 3] {
        let [core, package] = [0, 1].map(|level| self.topology[level][0]);
        [core, self.dies.get(1).map_or(package, |die| die[0]), package]
    }

    /// Holds each leaf against leaf 0xb, and that against how the VM's vCPUs are grouped.
    fn check(&self, cpus: CpuTopology, index: u16) {
        let what = |leaf: &str| format!("{:?}, vCPU {index}: {leaf}: {self:x?}", cpus.counts());
        let id = cpus.apic_id(index);
        let [core, die, package] = self.shifts();
        let threads = [0, 1].map(|level| self.topology[level][1]);
        assert_eq!(threads, [cpus.threads_per_core(), cpus.threads_per_package()], "{}", what("leaf 0xb"));
        let has_room = 1 << core >= threads[0] && 1 << package >= threads[1];
        assert!(self.topology.len() == 2 && has_room, "{}", what("leaf 0xb"));
        assert!(self.topology.iter().chain(&self.dies).all(|level| level[3] == id), "{}", what("id in 0xb or 0x1f"));
        let [_, ebx, _, edx] = self.features;
        assert_eq!((ebx >> 24, ebx >> 16 & 0xff), (id, 1 << package), "{}", what("leaf 1"));
        // Some KVMs set it for one thread, too, which is one by the number beside it.
        assert!(edx >> 28 & 1 == 1 || threads[1] == 1, "{}", what("leaf 1"));
        if cpus.dies_per_package() > 1 {
            let ends = [self.dies[0], self.dies[2]].map(|[eax, ebx, ..]| [eax, ebx]);
            assert_eq!(ends, [0, 1].map(|level| [self.topology[level][0], threads[level]]), "{}", what("leaf 0x1f"));
            assert_eq!(self.dies[1][1], cpus.threads_per_die(), "{}", what("leaf 0x1f"));
        }
        for [eax, ..] in &self.caches {
            let (level, sharing) = (eax >> 5 & 7, (eax >> 14 & 0xfff) + 1);
            assert_eq!(sharing, 1 << if level < 3 { core } else { die }, "{}", what("caches"));
            assert!(self.like_amd || (eax >> 26) + 1 == 1 << (package - core), "{}", what("cores in leaf 4"));
        }
        if self.like_amd {
            self.check_amd(id, cpus.dies_per_package(), what);
        }
    }

    /// What only AMD's have.
    fn check_amd(&self, id: u32, dies: u32, what: impl Fn(&str) -> String) {
        let [core, die, package] = self.shifts();
        let [threads, all] = [0, 1].map(|level| self.topology[level][1]);
        let [_, _, ecx, _] = self.sizes;
        assert_eq!((ecx & 0xff, ecx >> 12 & 0xf), (all - 1, package), "{}", what("leaf 0x80000008"));
        let Some([eax, ebx, ecx, _]) = self.unit else { return };
        let number = id >> core & ((1 << (package - core)) - 1);
        assert_eq!((eax, ebx & 0xff, (ebx >> 8 & 0xff) + 1), (id, number, threads), "{}", what("leaf 0x8000001e"));
        let node = if dies == 1 { 0 } else { id >> die };
        assert_eq!((ecx & 0xff, (ecx >> 8 & 7) + 1), (node, dies), "{}", what("nodes in leaf 0x8000001e"));
    }
}

fn every_shape(supported: Supported) -> Result<(), Failed> {
    let kvm = vm::open_kvm()?;
    let supported = supported(&kvm);
    for shape @ [threads, cores, dies, packages] in SHAPES {
        let cpus = CpuTopology::new(threads, cores, dies, packages).ok_or("a group of nothing")?;
        let said = ask(&kvm, &supported, cpus)?;
        for (index, said) in (0..).zip(&said) {
            said.check(cpus, index);
        }
        // Who is together by the shifts is so by the shape.
        let groups = [0, 1, 2].map(|level| {
            let number = |said: &Said| said.topology[0][3] >> said.shifts()[level];
            said.iter().map(number).collect::<BTreeSet<_>>().len()
        });
        assert_eq!(groups, [cores * dies * packages, dies * packages, packages].map(usize::from), "{shape:?}");
    }
    Ok(())
}

/// What each vCPU of a VM says.
fn ask(kvm: &Kvm, supported: &CpuId, cpus: CpuTopology) -> Result<Vec<Said>, Failed> {
    let memory = guest::map(&[Slot::new(GpaRange::of(0, MEMORY), Backing::default())])?;
    memory.write_slice(&CODE, GuestAddress(ENTRY))?;
    let fd = vm::create(kvm)?;
    vm::set_memory(&fd, &memory)?;
    let basis = Basis { cpus, shared_caches: true, nested: true, tsc_deadline: false, tsc_khz: None };
    let vcpus = 0..u16::try_from(cpus.total())?;
    let said = vcpus.map(|index| {
        let vcpu = fd.create_vcpu(cpus.apic_id(index).into())?;
        vcpu.set_cpuid2(&for_vcpu(supported, index, basis)?)?;
        let mut sregs = vcpu.get_sregs()?;
        (sregs.cs.base, sregs.cs.selector) = (0, 0);
        vcpu.set_sregs(&sregs)?;
        Said::by(&mut Asked(vcpu))
    });
    said.collect()
}
