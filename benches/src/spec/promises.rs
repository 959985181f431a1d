// SPDX-License-Identifier: Apache-2.0
//! The proof of each promise. A new one is a row of docs/SPECIFICATION.md, and the entry here that a test then asks for.

use super::bench::Variants;
use super::bound::{
    Bound::{self, AtLeast, AtMost},
    ROUNDS_OF_CLOSE_BOUNDS,
};
use super::changes;
use super::promise::{Promise, Proof};
use super::speed::{
    self, Claim,
    Source::{self, Boots, Changes},
};
use super::sweeps::{
    Measure::{self, Clocks, Growth, HostMemory, Work},
    SweepClaim,
};
use crate::guest::EXEC;

/// The deferred part of the memmap, as the kernel marks it.
const DEFERRED: (&str, &str) = ("deferred-begin", "deferred-end");

/// From the VMM's exec until init has done what it was asked for.
const UNTIL_READY: (&str, &str) = (EXEC, "user-ready");

/// What a check of the guest's init says of itself.
const WHAT_IS_TIMED: (&str, &str) = ("code 0x71", "user-ready");

/// All promises, in the order of docs/SPECIFICATION.md.
pub const PROMISES: &[Promise] = &[
    swept("flat-256g", ("flatboot", "async", "1G,256G"), &[], Growth(AtMost(1.10))),
    swept("flat-512g", ("flatboot", "async", "1G,512G"), &[], Growth(AtMost(1.15))),
    swept("flat-4g", ("flatboot", "async", "512M,4G"), &[], Growth(AtMost(1.10))),
    swept("flat-4g-qemu", ("qemu", "async", "512M,4G"), &[], Growth(AtMost(1.10))),
    swept("flat-1000g", ("flatboot", "async", "512M,1000G"), &[], Growth(AtMost(1.03))),
    swept("flat-256g-qemu", ("qemu", "async", "512M,256G"), &[], Growth(AtMost(1.10))),
    swept("flat-256g-qemu-4k", ("qemu", "async", "512M,256G"), &["--host-pages", "4K"], Growth(AtMost(1.10))),
    swept("flat-256g-qemu-table", ("qemu-table", "async", "512M,256G"), &[], Growth(AtMost(1.05))),
    swept("flat-256g-q35-table", ("qemu-q35-table", "async", "512M,256G"), &[], Growth(AtMost(1.05))),
    compared("uefi-256g", Claim { also: speed::cost_of_firmware, ..firmware(1.15) }),
    compared("uefi-firmware", Claim { step: ("first KVM_RUN", "firmware-end"), ..firmware(1.10) }),
    compared(
        "background-fill",
        Claim { step: DEFERRED, cpus: 2, ..claim(Boots(speed::background), "async", "parallel", AtMost(1.15)) },
    ),
    compared("first-use-4g", first_use(|bench| speed::taking(bench, "4G"))),
    // Most of what an emulated host has.
    compared("first-use-12g", first_use(|bench| speed::taking(bench, "12G"))),
    compared(
        "deferred-threads",
        Claim {
            step: DEFERRED,
            rounds: 1,
            cpus: 2,
            also: speed::share_of_faults,
            ..claim(Boots(speed::threads), "warm, 1 thread", "warm, 2 threads", AtLeast(1.5))
        },
    ),
    compared(
        "deferred-holes",
        Claim {
            step: DEFERRED,
            rounds: 1,
            also: speed::stock_ratio,
            ..claim(Boots(speed::holes), "64 regions", "1 region", AtMost(1.1))
        },
    ),
    compared("controlled", claim(Boots(speed::controlled), "all on", "all off", AtMost(1.03))),
    compared("devices-boot", claim(Boots(speed::devices), "all devices", "one disk", AtMost(1.05))),
    compared("two-nodes", Claim { cpus: 2, ..claim(Boots(speed::nodes), "two nodes", "one node", AtMost(1.05)) }),
    swept("work-net", ("flatboot,qemu", "async", "1G"), &["--work", "net", "--timeout", "600"], Work(AtLeast(1.0))),
    swept("work-vhost", ("flatboot,qemu", "async", "1G"), &["--work", "vhost", "--timeout", "600"], Work(AtLeast(1.0))),
    swept("work-disk", ("flatboot,qemu", "async", "1G"), &["--work", "disk", "--timeout", "600"], Work(AtLeast(1.0))),
    swept(
        "work-kernel",
        ("flatboot", "async,stock", "512M"),
        &["--work", "kernel", "--timeout", "600"],
        Work(AtLeast(0.97)),
    ),
    compared(
        "served",
        Claim { step: (EXEC, "first KVM_RUN"), ..claim(Boots(speed::served), "vm.boot", "flatboot run", AtMost(1.0)) },
    ),
    // Two processors that are awake when they have nothing to do: to have them woken takes the host a hundred times as long as
    // it takes the guest to switch. Sixteen are too many to be awake.
    compared("waits", waits(|bench| speed::waiting(bench, 2, "idle=poll"))),
    compared("waits-16", waits(|bench| speed::waiting(bench, 16, ""))),
    compared("grow", changed(Changes(changes::sizes), changes::RISEN, changes::FAR_MORE, changes::MORE, 1.1)),
    compared("shrink", changed(Changes(changes::sizes), changes::DONE, changes::FAR_LESS, changes::LESS, 1.2)),
    compared(
        "shrink-filled",
        Claim {
            rounds: 1,
            ..changed(Changes(changes::freed), changes::DONE, changes::FREED, changes::FREED_QEMU, 0.2)
        },
    ),
    swept("clocks", ("flatboot", "parallel", "1G"), &[], Clocks(2.0)),
    Promise { name: "footprint", proof: Proof::Footprint { kib: 5120 } },
    Promise { name: "program", proof: Proof::Program { mib: 6 } },
    swept("ondemand-memory", ("flatboot", "ondemand", "256G"), &[], HostMemory(96)),
    swept("ondemand-memory-1000g", ("flatboot", "ondemand", "1000G"), &[], HostMemory(52)),
    tests("limit-vcpus", &["--test", "cli", "run --cpus boot="]),
    tests("limit-memory", &["--test", "cli", "run --memory size="]),
    tests("limit-disks", &["--release", "--test", "vm", "devices::most_disks"]),
    tests("limit-cmdline", &["--test", "cli", "run --cmdline "]),
    tests("limit-holes", &["--test", "cli", "holes="]),
    tests("boots", &["--release", "--test", "vm", "boots::"]),
    tests("firmware", &["--release", "--test", "vm", "firmware::"]),
    script("firmware-plan", "firmware/check.sh"),
    tests("debian", &["--release", "--test", "vm", "debian::"]),
    tests("endings", &["--release", "--test", "vm", "endings::"]),
    tests("devices", &["--release", "--test", "vm", "devices::"]),
    tests("handoff", &["--release", "--test", "vm", "handoff::"]),
    tests("threads", &["--release", "--test", "vm", "handoff::threads"]),
    tests("modes", &["--release", "--test", "vm", "handoff::modes"]),
    script("fast-path", "guest-kernel/check-fast-path.sh"),
    script("switch-path", "guest-kernel/check-switch-path.sh"),
    script("each-patch", "guest-kernel/check-each-patch.sh"),
    script(
        "migration",
        "benches/selftests.sh --kernel guest --memory 8G --seconds 3600 --tests migrate-speed parallel",
    ),
    timed("after-boot", &["--release", "--test", "vm", "after_boot::"]),
    tests("memmap", &["--release", "--test", "vm", "memmap::"]),
    tests("hash-tables", &["--release", "--test", "vm", "tables::"]),
    tests("elastic", &["--release", "--test", "vm", "elastic::"]),
    timed("snapshot-size", &["--release", "--test", "vm", "snapshot_size::"]),
    timed("clone", &["--release", "--test", "vm", "clone::"]),
    timed("snapshot-cycles", &["--release", "--test", "vm", "cycles::"]),
    tests("hostile-guest", &["--lib", "devices::"]),
    tests("wrong-input", &["--test", "cli"]),
    tests("sweeps", &["--test", "sweep"]),
    tests("vmms", &["--release", "--test", "vm", "sweep::"]),
    tests("results", &["--test", "results"]),
    tests("report", &["--test", "report"]),
    tests("emulated-host", &["--release", "--test", "host"]),
];

/// A sweep of these VMMs, modes and sizes of memory, and options besides.
const fn swept(
    name: &'static str,
    (vmm, mode, memory): (&'static str, &'static str, &'static str),
    options: &'static [&'static str],
    measure: Measure,
) -> Promise {
    Promise { name, proof: Proof::Sweep(SweepClaim { vmm, mode, memory, options, measure }) }
}

const fn compared(name: &'static str, claim: Claim) -> Promise {
    Promise { name, proof: Proof::Speed(claim) }
}

/// A ratio of times to init, in as many rounds as close bounds need.
const fn claim(source: Source, above: &'static str, below: &'static str, bound: Bound) -> Claim {
    Claim {
        step: (EXEC, "init-exec"),
        source,
        above,
        below,
        bound,
        rounds: ROUNDS_OF_CLOSE_BOUNDS,
        cpus: 1,
        also: |_, _| String::new(),
    }
}

const fn firmware(at_most: f64) -> Claim {
    Claim { rounds: 1, ..claim(Boots(speed::firmware), "256 GiB", "1 GiB", AtMost(at_most)) }
}

const fn first_use(variants: Variants) -> Claim {
    Claim { step: UNTIL_READY, rounds: 1, cpus: 2, ..claim(Boots(variants), "async", "parallel", AtMost(1.1)) }
}

/// Something that the guest's init does, against stock 6.12. On one processor those that wait for each other take turns.
const fn waits(variants: Variants) -> Claim {
    Claim { step: WHAT_IS_TIMED, cpus: 2, ..claim(Boots(variants), "series", "stock", AtMost(1.03)) }
}

/// VMs whose memory is changed while they run, from the request to a mark: how long the one change takes against the other.
const fn changed(source: Source, mark: &'static str, above: &'static str, below: &'static str, at_most: f64) -> Claim {
    Claim { step: (changes::ASKED, mark), ..claim(source, above, below, AtMost(at_most)) }
}

const fn tests(name: &'static str, arguments: &'static [&'static str]) -> Promise {
    Promise { name, proof: Proof::Tests(arguments) }
}

/// Tests that time something, too.
const fn timed(name: &'static str, arguments: &'static [&'static str]) -> Promise {
    Promise { name, proof: Proof::Timed(arguments) }
}

const fn script(name: &'static str, script: &'static str) -> Promise {
    Promise { name, proof: Proof::Script(script) }
}

#[cfg(test)]
mod tests {
    use super::super::promise::SECTIONS;
    use super::*;

    #[test]
    fn names_are_unique_and_told() {
        for (index, promise) in PROMISES.iter().enumerate() {
            let mut others = PROMISES.iter().skip(index + 1);
            assert!(others.all(|other| other.name != promise.name), "{} is there twice", promise.name);
            assert!(!SECTIONS.contains(&promise.name), "{} is a section", promise.name);
            assert!(!promise.text().is_empty(), "{} is not in the specification", promise.name);
        }
    }
}
