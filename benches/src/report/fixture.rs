// SPDX-License-Identifier: Apache-2.0
//! Results for unit tests.

use crate::results::{Boot, End, FORMAT, Facts, GuestFacts, HostFacts, Mark, Results, Sample, Sweep, VERSION, Variant};

pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn variant(vmm: &str, mode: &str, memory_bytes: u64) -> Variant {
    Variant { vmm: vmm.into(), mode: mode.into(), memory_bytes, cpus: 2, ..Variant::default() }
}

/// A whole sweep, whose times to init in nanoseconds `init` gives by variant and round.
pub(crate) fn sweep(variants: Vec<Variant>, runs: u32, init: impl Fn(usize, u32) -> u64) -> Results {
    let sweep = Sweep { variants, runs, timeout_ms: 60_000, cmdline: "console=ttyS0".into(), ..Sweep::default() };
    let boot = |(variant, round)| Boot { variant, round, node: None, end: End::Init(sample(init(variant, round))) };
    let boots = sweep.boots().map(boot).collect();
    Results { format: FORMAT.into(), version: VERSION, sweep, facts: facts(), boots }
}

fn sample(init_ns: u64) -> Sample {
    let console_ns = init_ns + 1;
    Sample { init_ns, by_mark: true, console_ns, host_memory_bytes: 40 << 20, ..Sample::default() }
}

pub(crate) fn mark(ns: u64, name: &str, guest: bool) -> Mark {
    Mark { ns, name: name.into(), guest }
}

fn facts() -> Facts {
    let host = HostFacts {
        kvm: "emulated".into(),
        cpu_model: "QEMU TCG CPU version 2.5+".into(),
        cpus: 2,
        memory_bytes: 14 * GIB,
        kernel: "6.12.48".into(),
        thp: "always".into(),
        ..HostFacts::default()
    };
    let guest = GuestFacts { kernel: "vmlinux".into(), initramfs_sha256: "0".repeat(64), ..GuestFacts::default() };
    let versions = [("flatboot".to_owned(), "0.1.0".to_owned())].into();
    Facts { host, guest, versions, began_unix_s: 1_740_837_900, ..Facts::default() }
}
