// SPDX-License-Identifier: Apache-2.0
//! Results for unit tests.

use std::collections::BTreeMap;

use crate::results::{
    Boot, End, FORMAT, Facts, GuestFacts, HostFacts, HostPages, Mark, Results, Sample, Sweep, VERSION, Variant,
};

pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn variant(vmm: &str, mode: &str, memory_bytes: u64) -> Variant {
    Variant {
        vmm: vmm.into(),
        mode: mode.into(),
        threads: None,
        without: None,
        memory_bytes,
        cpus: 2,
        vms: None,
        start: None,
    }
}

/// A whole sweep, whose times to init in nanoseconds `init` gives by variant and round.
pub(crate) fn sweep(variants: Vec<Variant>, runs: u32, init: impl Fn(usize, u32) -> u64) -> Results {
    let sweep = Sweep {
        variants,
        runs,
        timeout_ms: 60_000,
        cmdline: "console=ttyS0".into(),
        host_pages: HostPages::Any,
        work: Vec::new(),
    };
    let boot = |(variant, round)| Boot { variant, round, node: None, end: End::Init(sample(init(variant, round))) };
    let boots = sweep.boots().map(boot).collect();
    Results { format: FORMAT.into(), version: VERSION, sweep, facts: facts(), boots }
}

fn sample(init_ns: u64) -> Sample {
    Sample {
        init_ns,
        by_mark: true,
        console_ns: init_ns + 1,
        first_instruction_ns: None,
        host_memory_bytes: 40 << 20,
        marks: Vec::new(),
        work: BTreeMap::new(),
        began_ns: None,
    }
}

pub(crate) fn mark(ns: u64, name: &str, guest: bool) -> Mark {
    Mark { ns, name: name.into(), guest }
}

fn facts() -> Facts {
    let host = HostFacts {
        kvm: "emulated".into(),
        cpu_model: "QEMU TCG CPU version 2.5+".into(),
        machine_cpu_model: None,
        cpus: 2,
        memory_bytes: 14 * GIB,
        kernel: "6.12.48".into(),
        thp: "always".into(),
    };
    let guest = GuestFacts {
        kernel: "vmlinux".into(),
        build_id: None,
        config_sha256: None,
        stock_build_id: None,
        initramfs_sha256: "0".repeat(64),
        userland: None,
    };
    Facts {
        host,
        guest,
        versions: [("flatboot".to_owned(), "0.1.0".to_owned())].into(),
        revision: None,
        began_unix_s: 1_740_837_900,
    }
}
