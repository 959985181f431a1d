// SPDX-License-Identifier: Apache-2.0
//! The promises. A new one is an entry here and the row of docs/SPECIFICATION.md that the test then asks for.

use super::bench::{Bench, BenchError, Variant};
use super::bound::{Bound, ROUNDS_OF_CLOSE_BOUNDS};
use super::changes;
use super::promise::{Promise, Proof, Section};
use super::samples::Samples;
use super::speed::{
    self, Claim,
    Source::{self, Boots, Changes},
};
use super::sweeps::{Measure, SweepClaim};
use crate::guest::EXEC;

/// The deferred part of the memmap, as the kernel marks it.
const DEFERRED: (&str, &str) = ("deferred-begin", "deferred-end");

/// From the VMM's exec until init has done what it was asked for.
const UNTIL_READY: (&str, &str) = (EXEC, "user-ready");

/// What a check of the guest's init says of itself.
const WHAT_IS_TIMED: (&str, &str) = ("code 0x71", "user-ready");

/// All promises, in the order of docs/SPECIFICATION.md.
pub const PROMISES: &[Promise] = &[
    flat(
        "flat-256g",
        "time to init at 256 GiB: {bound} times that at 1 GiB (`async`, flatboot)",
        ("flatboot", "1G,256G", &[]),
        1.10,
    ),
    flat(
        "flat-512g",
        "time to init at 512 GiB: {bound} times that at 1 GiB (`async`, flatboot)",
        ("flatboot", "1G,512G", &[]),
        1.15,
    ),
    flat(
        "flat-4g",
        "time to init at 4 GiB: {bound} times that at 512 MiB (`async`, flatboot)",
        ("flatboot", "512M,4G", &[]),
        1.10,
    ),
    flat(
        "flat-4g-qemu",
        "the same under QEMU's microvm, which puts 3 GiB below 4 GiB: {bound} times",
        ("qemu", "512M,4G", &[]),
        1.10,
    ),
    flat(
        "flat-1000g",
        "time to init at 1000 GiB: {bound} times that at 512 MiB (`async`, flatboot)",
        ("flatboot", "512M,1000G", &[]),
        1.03,
    ),
    flat(
        "flat-256g-qemu",
        "QEMU's microvm, which tells the kernel nothing: time to init at 256 GiB {bound} times that at 512 MiB (`async`)",
        ("qemu", "512M,256G", &[]),
        1.10,
    ),
    flat(
        "flat-256g-qemu-4k",
        "the same on a host that backs guests with 4 KiB pages: {bound} times",
        ("qemu", "512M,256G", &["--host-pages", "4K"]),
        1.10,
    ),
    flat(
        "flat-256g-qemu-table",
        "QEMU's microvm with a table of the hand-off, started as docs/other-vmms.md says: {bound} times",
        ("qemu-table", "512M,256G", &[]),
        1.05,
    ),
    flat("flat-256g-q35-table", "the same under QEMU's q35: {bound} times", ("qemu-q35-table", "512M,256G", &[]), 1.05),
    firmware(
        "uefi-256g",
        "through UEFI firmware, time to init at 256 GiB: {bound} times that at 1 GiB (`async`, flatboot)",
        (EXEC, "init-exec"),
        1.15,
        speed::cost_of_firmware,
    ),
    firmware(
        "uefi-firmware",
        "the firmware's own part of that, until ExitBootServices: at 256 GiB {bound} times that at 1 GiB",
        ("first KVM_RUN", "firmware-end"),
        1.10,
        speed::nothing,
    ),
    Promise {
        name: "background-fill",
        section: Section::Speed,
        statement: "64 GiB: filling the memmap behind init's back (`async`) takes {bound} times as long as while init waits (`parallel`)",
        proof: Proof::Speed(Claim {
            step: DEFERRED,
            source: Boots(speed::background),
            above: "async",
            below: "parallel",
            bound: Bound::AtMost(1.15),
            rounds: ROUNDS_OF_CLOSE_BOUNDS,
            cpus: 2,
            also: speed::nothing,
        }),
    },
    first_use(
        "first-use-4g",
        "boot, then at once 90 % of 4 GiB taken and written to: with `async` {bound} times as long in all as with `parallel`",
        speed::first_use,
    ),
    first_use("first-use-12g", "the same of 12 GiB: {bound} times", speed::first_use_of_more),
    Promise {
        name: "deferred-threads",
        section: Section::Speed,
        statement: "64 GiB, memmap backed: deferred init on 2 vCPUs is {bound} times as fast as on 1",
        proof: Proof::Speed(Claim {
            step: DEFERRED,
            source: Boots(speed::threads),
            above: "warm, 1 thread",
            below: "warm, 2 threads",
            bound: Bound::AtLeast(1.5),
            rounds: 1,
            cpus: 2,
            also: speed::share_of_faults,
        }),
    },
    Promise {
        name: "deferred-holes",
        section: Section::Speed,
        statement: "64 GiB, memmap backed: memory cut into 64 regions takes {bound} times as long as one region",
        proof: Proof::Speed(Claim {
            step: DEFERRED,
            source: Boots(speed::holes),
            above: "64 regions",
            below: "1 region",
            bound: Bound::AtMost(1.1),
            rounds: 1,
            cpus: 1,
            also: speed::stock_ratio,
        }),
    },
    Promise {
        name: "controlled",
        section: Section::Speed,
        statement: "with control socket, event monitor, seccomp and Landlock, time to init is {bound} times that without any of them",
        proof: Proof::Speed(Claim {
            step: (EXEC, "init-exec"),
            source: Boots(speed::controlled),
            above: "all on",
            below: "all off",
            bound: Bound::AtMost(1.03),
            rounds: ROUNDS_OF_CLOSE_BOUNDS,
            cpus: 1,
            also: speed::nothing,
        }),
    },
    Promise {
        name: "devices-boot",
        section: Section::Speed,
        statement: "time to init with a network interface, vsock, a balloon and two disks is {bound} times that with one disk, on hosts that have started such a VM before",
        proof: Proof::Speed(Claim {
            step: (EXEC, "init-exec"),
            source: Boots(speed::devices),
            above: "all devices",
            below: "one disk",
            bound: Bound::AtMost(1.05),
            rounds: ROUNDS_OF_CLOSE_BOUNDS,
            cpus: 1,
            also: speed::nothing,
        }),
    },
    Promise {
        name: "two-nodes",
        section: Section::Speed,
        statement: "time to init at 64 GiB, 2 vCPUs, on two NUMA nodes is {bound} times that on one",
        proof: Proof::Speed(Claim {
            step: (EXEC, "init-exec"),
            source: Boots(speed::nodes),
            above: "two nodes",
            below: "one node",
            bound: Bound::AtMost(1.05),
            rounds: ROUNDS_OF_CLOSE_BOUNDS,
            cpus: 2,
            also: speed::nothing,
        }),
    },
    work(
        "work-net",
        "what a guest sends, receives and is answered over a tap: {bound} times what it is under QEMU's microvm",
        &["--work", "net", "--timeout", "600"],
    ),
    work("work-vhost", "the same by vhost-net: {bound} times", &["--work", "vhost", "--timeout", "600"]),
    work(
        "work-disk",
        "what a guest reads, writes and flushes: {bound} times what it is under QEMU's microvm by io_uring",
        &["--work", "disk", "--timeout", "600"],
    ),
    work_of_kernel(
        "work-kernel",
        "what a guest does after its boot, with memory, processes and files: {bound} times what it is on stock 6.12",
        &["--work", "kernel", "--timeout", "600"],
    ),
    Promise {
        name: "served",
        section: Section::Speed,
        statement: "from the request vm.boot to the guest's first instruction it takes {bound} times as long as from exec by command line",
        proof: Proof::Speed(Claim {
            step: (EXEC, "first KVM_RUN"),
            source: Boots(speed::served),
            above: "vm.boot",
            below: "flatboot run",
            bound: Bound::AtMost(1.0),
            rounds: ROUNDS_OF_CLOSE_BOUNDS,
            cpus: 1,
            also: speed::nothing,
        }),
    },
    waits(
        "waits",
        "threads on 2 vCPUs that wait for each other take {bound} times as long as on stock 6.12",
        speed::waits,
    ),
    waits("waits-16", "the same on 16 vCPUs: {bound} times", speed::waits_of_16),
    changed(
        "grow",
        "a VM of 1 GiB grows to 256 GiB, from the request to the guest's MemTotal, in {bound} times the time to 2 GiB (`ondemand`)",
        (Changes(changes::sizes), changes::RISEN, ROUNDS_OF_CLOSE_BOUNDS),
        (changes::FAR_MORE, changes::MORE, 1.1),
    ),
    changed(
        "shrink",
        "255 GiB that were never filled go back in {bound} times the time of 1 GiB (`ondemand`)",
        (Changes(changes::sizes), changes::DONE, ROUNDS_OF_CLOSE_BOUNDS),
        (changes::FAR_LESS, changes::LESS, 1.2),
    ),
    changed(
        "shrink-filled",
        "2 GiB that were filled and are empty again go back in {bound} times the time that virtio-mem takes stock 6.12 under QEMU",
        (Changes(changes::freed), changes::DONE, 1),
        (changes::FREED, changes::FREED_QEMU, 0.2),
    ),
    Promise {
        name: "clocks",
        section: Section::Speed,
        statement: "flatboot's timeline and a program that watches the console from outside differ in exec-to-init by {bound}",
        proof: Proof::Sweep(SweepClaim {
            vmm: "flatboot",
            mode: "parallel",
            memory: "1G",
            options: &[],
            measure: Measure::Clocks(2.0),
        }),
    },
    Promise {
        name: "footprint",
        section: Section::Size,
        statement: "flatboot's own resident memory, guest memory apart, with 1 vCPU, 128 MiB and a control socket: {bound}",
        proof: Proof::Footprint { kib: 5120 },
    },
    Promise {
        name: "program",
        section: Section::Size,
        statement: "flatboot's executable, which needs nothing else: {bound}",
        proof: Proof::Program { mib: 6 },
    },
    ondemand("ondemand-memory", "host memory used when init begins, 256 GiB, 2 vCPUs, `ondemand`: {bound}", "256G", 96),
    ondemand("ondemand-memory-1000g", "the same at 1000 GiB: {bound}", "1000G", 52),
    tests(
        "limit-vcpus",
        Section::Limits,
        "vCPUs: 1 to 1024, and no more than KVM allows",
        &["--test", "cli", "run --cpus boot="],
    ),
    tests(
        "limit-memory",
        Section::Limits,
        "memory: 64 MiB to what the host's physical addresses have room for; multiples of 1 MiB",
        &["--test", "cli", "run --memory size="],
    ),
    tests(
        "limit-disks",
        Section::Limits,
        "virtio disks: 0 to 13",
        &["--release", "--test", "vm", "devices::most_disks"],
    ),
    tests(
        "limit-cmdline",
        Section::Limits,
        "kernel command line: 2047 bytes at most, flatboot's defaults included",
        &["--test", "cli", "run --cmdline "],
    ),
    tests("limit-holes", Section::Limits, "memory holes (`holes=`): 0 to 124", &["--test", "cli", "holes="]),
    tests(
        "boots",
        Section::Behaviour,
        "1, 2, 4, 16 vCPUs; 64 MiB to 256 GiB, ragged sizes, holes; vmlinux and bzImage; Debian's unmodified cloud kernel; 20 boots in a row",
        &["--release", "--test", "vm", "boots::"],
    ),
    tests(
        "firmware",
        Section::Behaviour,
        "UEFI firmware boots the kernel that it is offered, 1, 2 and 16 vCPUs, 512 MiB to 256 GiB, flatboot and QEMU; the kernel's regions are those of a direct boot; a malformed plan is refused with one line; with nothing to boot the VM ends",
        &["--release", "--test", "vm", "firmware::"],
    ),
    Promise {
        name: "firmware-plan",
        section: Section::Behaviour,
        statement: "firmware judges plans as the VMM and the kernel do, and makes hand-offs of memory maps with holes, with 1 MiB of high memory, with 200 entries",
        proof: Proof::Script("firmware/check.sh"),
    },
    tests(
        "debian",
        Section::Behaviour,
        "Debian 12 comes up to its login prompt, and the power button takes it down",
        &["--release", "--test", "vm", "debian::"],
    ),
    tests(
        "endings",
        Section::Behaviour,
        "power-off, reset, panic, triple fault, SIGTERM, SIGKILL end in the documented way",
        &["--release", "--test", "vm", "endings::"],
    ),
    tests(
        "devices",
        Section::Behaviour,
        "a real driver finds disks, the entropy device and the serial port as they were asked for",
        &["--release", "--test", "vm", "devices::"],
    ),
    tests(
        "handoff",
        Section::Behaviour,
        "a hand-off with any field broken is ignored with one line, and the guest boots with all its memory",
        &["--release", "--test", "vm", "handoff::"],
    ),
    tests(
        "threads",
        Section::Behaviour,
        "deferred init with any number of threads makes the zones that serial init makes",
        &["--release", "--test", "vm", "handoff::threads"],
    ),
    tests(
        "modes",
        Section::Behaviour,
        "every mode of `memmap_init=` is the one in effect and gives the same MemTotal; an unknown one is ignored with one line",
        &["--release", "--test", "vm", "handoff::modes"],
    ),
    Promise {
        name: "fast-path",
        section: Section::Behaviour,
        statement: "the page allocator's fast paths are the same machine code with the series as without it, its static branches and the order of the conditions of an `&&` apart",
        proof: Proof::Script("guest-kernel/check-fast-path.sh"),
    },
    Promise {
        name: "switch-path",
        section: Section::Behaviour,
        statement: "switching between tasks changes no counter of those who use an address space, as it does without the series",
        proof: Proof::Script("guest-kernel/check-switch-path.sh"),
    },
    Promise {
        name: "each-patch",
        section: Section::Behaviour,
        statement: "the kernel builds without a warning after each patch of the series, and boots: 90 % of memory can be taken, and it does not complain",
        proof: Proof::Script("guest-kernel/check-each-patch.sh"),
    },
    Promise {
        name: "migration",
        section: Section::Behaviour,
        statement: "pages that several threads move between nodes move at least 0.95 times as fast as by one thread, which moves them as stock 6.12 does, and 64 huge pages and more at least 1.5 times as fast on idle processors; 2 GiB in use go offline 1.3 times as fast",
        proof: Proof::Script(
            "benches/selftests.sh --kernel guest --memory 8G --seconds 3600 --tests migrate-speed parallel",
        ),
    },
    timed(
        "after-boot",
        "readers of four times the memory: where they free a tenth of it themselves, four kswapd threads leave at most 0.5 times the direct reclaims and reading takes no longer, and with as many as are of use, the default, it nowhere takes more than 1.03 times as long; page tables that CPUs have borrowed without counting are left in time, and programs that come and go interrupt other processors at most 1.03 times as often as on stock 6.12; processors that touch new memory at once take its zone's lock at most once for 4 MiB (`ondemand`)",
        &["--release", "--test", "vm", "after_boot::"],
    ),
    tests(
        "memmap",
        Section::Behaviour,
        "in every mode of `memmap_init=` all memory can be taken at once, under storms of other work, as huge pages and with holes; pages are right, counts agree, and all is what it is with `parallel`",
        &["--release", "--test", "vm", "memmap::"],
    ),
    tests(
        "hash-tables",
        Section::Behaviour,
        "hash tables that the kernel clears when it uses them are right before, while and after they grow, also under QEMU's microvm with memory full of 0xa5",
        &["--release", "--test", "vm", "tables::"],
    ),
    tests(
        "elastic",
        Section::Behaviour,
        "a VM's memory grows and shrinks while it runs; what was in it is right, the host has its memory again, what is pinned stays and is told, and a snapshot goes on in another size",
        &["--release", "--test", "vm", "elastic::"],
    ),
    timed(
        "snapshot-size",
        "Debian 12 at its login prompt, 256 GiB, `ondemand`: a snapshot has at most 1.1 times the memory that the guest touched, and takes at most 1.1 times as long as one at 1 GiB",
        &["--release", "--test", "vm", "snapshot_size::"],
    ),
    timed(
        "clone",
        "a VM that is restored runs its first instruction in at most 0.1 times the time of a boot to init, as soon in 256 GiB as in the 512 MiB of its template; fifty clones at once differ, and each has at most 8 MiB of the host; two of Debian have other machine IDs after what snapshots.md says",
        &["--release", "--test", "vm", "clone::"],
    ),
    timed(
        "snapshot-cycles",
        "a guest that is saved and restored again and again loses nothing; a VMM that is killed meanwhile leaves a whole snapshot or none",
        &["--release", "--test", "vm", "cycles::"],
    ),
    tests(
        "hostile-guest",
        Section::Behaviour,
        "no guest input makes a device panic, loop or leave guest memory",
        &["--lib", "devices::"],
    ),
    tests(
        "wrong-input",
        Section::Behaviour,
        "wrong input: one line, exit status 1 or 2, nothing left behind",
        &["--test", "cli"],
    ),
    tests(
        "sweeps",
        Section::Behaviour,
        "a sweep keeps every raw sample, outlives failed and hung boots, can be stopped, killed and resumed, and overwrites nothing",
        &["--test", "sweep"],
    ),
    tests(
        "vmms",
        Section::Behaviour,
        "flatboot and QEMU boot the same guest, and the observer times both by the kernel's mark; each part can be switched off, and init is reached",
        &["--release", "--test", "vm", "sweep::"],
    ),
    tests(
        "results",
        Section::Behaviour,
        "`show` and `compare` read any file of `run` and refuse any other; what is slower by more than the limit fails, noise does not",
        &["--test", "results"],
    ),
    tests(
        "report",
        Section::Behaviour,
        "the report loads in a browser without an error or the network, draws every chart and sorts its table",
        &["--test", "report"],
    ),
    tests(
        "emulated-host",
        Section::Behaviour,
        "the emulated KVM host passes on input, output, signals and exit codes, and its failures are told from the program's",
        &["--release", "--test", "host"],
    ),
];

/// With `async`, under a VMM with two sizes of memory, and options besides.
const fn flat(
    name: &'static str,
    statement: &'static str,
    (vmm, memory, options): (&'static str, &'static str, &'static [&'static str]),
    at_most: f64,
) -> Promise {
    let measure = Measure::Growth(Bound::AtMost(at_most));
    let claim = SweepClaim { vmm, mode: "async", memory, options, measure };
    Promise { name, section: Section::Speed, statement, proof: Proof::Sweep(claim) }
}

const fn ondemand(name: &'static str, statement: &'static str, memory: &'static str, mib: u64) -> Promise {
    let measure = Measure::HostMemory(mib);
    let claim = SweepClaim { vmm: "flatboot", mode: "ondemand", memory, options: &[], measure };
    Promise { name, section: Section::Size, statement, proof: Proof::Sweep(claim) }
}

/// A group of workloads, under flatboot and QEMU.
const fn work(name: &'static str, statement: &'static str, options: &'static [&'static str]) -> Promise {
    let measure = Measure::Work(Bound::AtLeast(1.0));
    let claim = SweepClaim { vmm: "flatboot,qemu", mode: "async", memory: "1G", options, measure };
    Promise { name, section: Section::Speed, statement, proof: Proof::Sweep(claim) }
}

const fn work_of_kernel(name: &'static str, statement: &'static str, options: &'static [&'static str]) -> Promise {
    let measure = Measure::Work(Bound::AtLeast(0.97));
    let claim = SweepClaim { vmm: "flatboot", mode: "async,stock", memory: "512M", options, measure };
    Promise { name, section: Section::Speed, statement, proof: Proof::Sweep(claim) }
}

const fn firmware(
    name: &'static str,
    statement: &'static str,
    step: (&'static str, &'static str),
    bound: f64,
    also: fn(&Samples, (&str, &str)) -> String,
) -> Promise {
    Promise {
        name,
        section: Section::Speed,
        statement,
        proof: Proof::Speed(Claim {
            step,
            source: Boots(speed::firmware),
            above: "256 GiB",
            below: "1 GiB",
            bound: Bound::AtMost(bound),
            rounds: 1,
            cpus: 1,
            also,
        }),
    }
}

/// VMs whose memory is changed while they run, from the request to a mark: how long the one change takes against the other.
const fn changed(
    name: &'static str,
    statement: &'static str,
    (source, mark, rounds): (Source, &'static str, usize),
    (above, below, at_most): (&'static str, &'static str, f64),
) -> Promise {
    let claim = Claim {
        step: (changes::ASKED, mark),
        source,
        above,
        below,
        bound: Bound::AtMost(at_most),
        rounds,
        cpus: 1,
        also: speed::nothing,
    };
    Promise { name, section: Section::Speed, statement, proof: Proof::Speed(claim) }
}

const fn first_use(
    name: &'static str,
    statement: &'static str,
    variants: fn(&Bench) -> Result<Vec<Variant>, BenchError>,
) -> Promise {
    let claim = Claim {
        step: UNTIL_READY,
        source: Boots(variants),
        above: "async",
        below: "parallel",
        bound: Bound::AtMost(1.1),
        rounds: 1,
        cpus: 2,
        also: speed::nothing,
    };
    Promise { name, section: Section::Speed, statement, proof: Proof::Speed(claim) }
}

/// Something that the guest's init does, against stock 6.12.
const fn waits(
    name: &'static str,
    statement: &'static str,
    variants: fn(&Bench) -> Result<Vec<Variant>, BenchError>,
) -> Promise {
    let claim = Claim {
        step: WHAT_IS_TIMED,
        source: Boots(variants),
        above: "series",
        below: "stock",
        bound: Bound::AtMost(1.03),
        rounds: ROUNDS_OF_CLOSE_BOUNDS,
        // On one processor those that wait for each other take turns, whatever the kernel.
        cpus: 2,
        also: speed::nothing,
    };
    Promise { name, section: Section::Speed, statement, proof: Proof::Speed(claim) }
}

const fn tests(
    name: &'static str,
    section: Section,
    statement: &'static str,
    arguments: &'static [&'static str],
) -> Promise {
    Promise { name, section, statement, proof: Proof::Tests(arguments) }
}

/// Tests that time something, too.
const fn timed(name: &'static str, statement: &'static str, arguments: &'static [&'static str]) -> Promise {
    Promise { name, section: Section::Behaviour, statement, proof: Proof::Timed(arguments) }
}

impl Section {
    /// The table of this section in docs/SPECIFICATION.md.
    #[must_use]
    pub fn table(self) -> String {
        let rows = PROMISES.iter().filter(|promise| promise.section == self);
        let rows =
            rows.map(|promise| format!("| `{}` | {} | `{}` |\n", promise.name, promise.text(), promise.command()));
        "| Name | Promise | Command |\n|---|---|---|\n".to_owned() + &rows.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sections_together() {
        for (index, promise) in PROMISES.iter().enumerate() {
            let others = PROMISES.iter().skip(index + 1);
            assert!(others.clone().all(|other| other.name != promise.name), "{} is there twice", promise.name);
            assert!(Section::ALL.iter().all(|section| section.name() != promise.name), "{} is a section", promise.name);
            let then = PROMISES.get(index + 1).map(|next| next.section as u8);
            assert!(then.is_none_or(|then| then >= promise.section as u8), "{} is out of order", promise.name);
        }
    }

    /// A bound that the sentence does not say would be a promise that nobody reads.
    #[test]
    fn every_bound_is_told() {
        for promise in PROMISES {
            let told = promise.statement.contains("{bound}");
            let tested = matches!(promise.proof, Proof::Script(_) | Proof::Tests(_) | Proof::Timed(_));
            assert_eq!(told, !tested, "{}", promise.name);
            assert!(!promise.text().contains(['{', '}', '|']), "{}", promise.text());
        }
    }
}
