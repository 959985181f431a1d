// SPDX-License-Identifier: Apache-2.0
//! Made-up results that look like measured ones. Nothing here was measured: pictures of it are for looking at pages only.

use flatboot_bench::results::{
    Boot, End, FORMAT, Facts, GuestFacts, HostFacts, Mark, Results, Sample, Sweep, VERSION, Variant,
};

const GIB: u64 = 1 << 30;
const MS: u64 = 1_000_000;

/// What flatboot and the guest report, with milliseconds since the mark before; `memmap` takes its time by the memory.
const MARKS: [(&str, bool, u64); 25] = [
    ("configuration valid", false, 41),
    ("kernel image checked", false, 3),
    ("KVM opened", false, 7),
    ("memory planned", false, 1),
    ("memory mapped", false, 3),
    ("VM created", false, 28),
    ("devices built", false, 6),
    ("vCPU threads started", false, 6),
    ("kernel and initramfs loaded", false, 140),
    ("boot tables written", false, 9),
    ("every vCPU ready", false, 8),
    ("first KVM_RUN", false, 1),
    ("kernel-entry", true, 11),
    ("memory-map-ready", true, 60),
    ("memmap-begin", true, 14),
    ("memmap-end", true, MEMMAP),
    ("console-ready", true, 300),
    ("timers-ready", true, 250),
    ("smp-begin", true, 1100),
    ("smp-end", true, 50),
    ("drivers-begin", true, 80),
    ("drivers-end", true, 310),
    ("init-exec", true, 240),
    ("user-start", true, 70),
    ("user-ready", true, 20),
];

/// Stands for the time that the memmap takes.
const MEMMAP: u64 = 0;

/// Numbers that look random and are always the same.
struct Noise(u64);

impl Noise {
    /// `value`, up to 6 % more, now and then 15 %.
    fn around(&mut self, value: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = self.0 >> 33;
        value + value * (random % 60) / 1000 + if random.is_multiple_of(17) { value * 9 / 100 } else { 0 }
    }
}

/// 1 to 256 GiB, flatboot and QEMU, serial and parallel, `runs` boots of each on each vCPU count.
pub(crate) fn sweep(cpus: &[u16], runs: u32) -> Results {
    let mut variants = Vec::new();
    for cpus in cpus {
        for (vmm, mode) in [("flatboot", "parallel"), ("flatboot", "serial"), ("qemu", "parallel"), ("qemu", "serial")]
        {
            for gib in [1, 4, 16, 64, 256] {
                let (vmm, mode) = (vmm.into(), mode.into());
                let (memory_bytes, cpus) = (gib * GIB, *cpus);
                variants.push(Variant { vmm, mode, memory_bytes, cpus, ..Variant::default() });
            }
        }
    }
    let sweep = Sweep {
        variants,
        runs,
        timeout_ms: 120_000,
        cmdline: "console=ttyS0 panic=-1 quiet".into(),
        ..Sweep::default()
    };
    let mut noise = Noise(42);
    let boot = |(variant, round)| Boot {
        variant,
        round,
        node: None,
        end: End::Init(sample(&sweep.variants[variant], &mut noise)),
    };
    let boots = sweep.boots().map(boot).collect();
    Results { format: FORMAT.into(), version: VERSION, sweep, facts: facts(), boots }
}

/// The first boots of some variants after the warm-up fail.
pub(crate) fn break_some(results: &mut Results) {
    for boot in results.boots.iter_mut().filter(|boot| boot.round == 1 && boot.variant % 7 == 3) {
        let console = ["[    0.000000] Linux version 6.12.48", "Out of memory and no killable processes"];
        let why = "no init within 120 s".into();
        boot.end = End::Failed { why, console: console.map(String::from).to_vec() };
    }
}

fn sample(variant: &Variant, noise: &mut Noise) -> Sample {
    let threads = if variant.mode == "parallel" { u64::from(variant.cpus) } else { 1 };
    let memmap = 62 * MS * (variant.memory_bytes / GIB) / threads + 5 * MS;
    let host_memory_bytes = noise.around((38 << 20) + variant.memory_bytes / 64);
    if variant.vmm == "qemu" {
        let init_ns = noise.around(3_100 * MS + memmap);
        return Sample {
            init_ns,
            console_ns: init_ns,
            host_memory_bytes: host_memory_bytes + (31 << 20),
            ..Sample::default()
        };
    }
    let mut ns = 0;
    let marks: Vec<_> = MARKS
        .into_iter()
        .map(|(name, guest, ms)| {
            ns += noise.around(if ms == MEMMAP { memmap } else { ms * MS });
            Mark { ns, name: name.into(), guest }
        })
        .collect();
    let at = |name| marks.iter().find(|mark| mark.name == name).map(|mark| mark.ns);
    let init_ns = at("init-exec").unwrap_or(0);
    let (by_mark, console_ns, first_instruction_ns) = (true, init_ns + 70 * MS, at("first KVM_RUN"));
    Sample { init_ns, by_mark, console_ns, first_instruction_ns, host_memory_bytes, marks, ..Sample::default() }
}

fn facts() -> Facts {
    let host = HostFacts {
        kvm: "emulated".into(),
        cpu_model: "QEMU TCG CPU version 2.5+".into(),
        machine_cpu_model: Some("A made-up processor".into()),
        cpus: 2,
        memory_bytes: 14 * GIB,
        kernel: "6.12.48".into(),
        thp: "always".into(),
    };
    let guest = GuestFacts {
        kernel: "vmlinux".into(),
        build_id: Some("0badc0de".repeat(5)),
        config_sha256: Some("0123456789abcdef".repeat(4)),
        initramfs_sha256: "fedcba9876543210".repeat(4),
        ..GuestFacts::default()
    };
    let versions = [("flatboot", "flatboot 0.0.0 (made up)"), ("qemu", "QEMU emulator version 0.0.0 (made up)")];
    Facts {
        host,
        guest,
        versions: versions.map(|(program, version)| (program.to_owned(), version.to_owned())).into(),
        programs: versions.map(|(program, _)| (program.to_owned(), "0a1b2c3d4e5f6789".repeat(4))).into(),
        revision: Some("0000000-dirty".into()),
        began_unix_s: 1_740_837_900,
    }
}
