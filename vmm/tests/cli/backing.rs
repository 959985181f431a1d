// SPDX-License-Identifier: Apache-2.0
//! Memory that the host cannot give: an error at start, and no signal later.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use flatboot::memory::{Backing, GpaRange, HostPages, Prefault, Size, Slot, guest, prefault};
use libtest_mimic::{Failed, Trial};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::{RUNS, program};
use crate::refusal::{ERROR, Files, Row};

const HUGE: &str = "needs … free pages of …, the host has …: must be at most that, or more reserved in \
                    /sys/kernel/mm/hugepages/hugepages-…kB/nr_hugepages";

pub(crate) fn rows(host: &Host) -> Vec<Row> {
    // More than any host has free, and half of what this one can address.
    let size = 1u64 << (host.check["address_bits"].as_u64().unwrap_or(52) - 1);
    // What may be less is the memmap alone, a 64th of that.
    let prefaults = [
        (",prefault=on", "--memory prefault=on", size),
        (" --study prefault_arenas=on", "--study prefault_arenas=on", size / 64),
    ];
    let mut rows: Vec<_> = prefaults
        .into_iter()
        .filter(|(_, _, needed)| *needed > memory())
        .map(|(arguments, prefault, needed)| {
            let line = format!("backs {}, this host has … to give: must be at most that", Size(needed));
            row(&format!("run --memory size={size}{arguments}"), &format!("{prefault}: {line}"))
        })
        .collect();
    for (page, kib) in [("2M", 2048), ("1G", 1 << 20)] {
        for shared in ["", ",shared=on", ",prefault=on"] {
            let arguments = format!("run --memory size={size},hugepages=on,hugepage_size={page}{shared}");
            let there = Path::new(&format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB")).exists();
            let lacks = format!("this host has no pages of {page}: hugepage_size must be …");
            let line = if there { HUGE } else { &lacks };
            rows.push(row(&arguments, &format!("--memory hugepages=on: {line}")));
        }
    }
    rows
}

fn row(arguments: &str, line: &str) -> Row {
    Row::new(arguments, arguments, ERROR, line)
}

/// Bytes of memory and swap that this host has.
fn memory() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let lines = meminfo.lines().filter_map(|line| line.split_once("Total:"));
    let totals = lines.filter(|(name, _)| ["Mem", "Swap"].contains(name));
    totals.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok()).sum::<u64>() << 10
}

/// Limits of this process that mapping runs into.
pub(crate) fn trials(host: &Arc<Host>) -> Vec<Trial> {
    let limits = [
        // In KiB, as bash and dash count.
        ("-v 1000000", "size=1G", "see ulimit -v and vm.overcommit_memory: Cannot allocate memory (os error 12)"),
        ("-v 1000000", "size=1G,shared=on,prefault=on", "see ulimit -v and vm.overcommit_memory: …"),
        ("-f 1000", "size=1G,shared=on", "see ulimit -f: File too large (os error 27)"),
    ];
    let pools = [(HostPages::Huge2M, 64), (HostPages::Huge1G, 1)].into_iter().flat_map(|(pages, count)| {
        [false, true].map(|shared| {
            let (kib, kind) = (pages.bytes() >> 10, if shared { "shared" } else { "private" });
            let name = format!("{count} {kind} pages of {kib} KiB are backed and written to");
            // The process keeps the pages of both kinds.
            let ignored = host.skips(&name, Needs::HugePages(2 * count, kib));
            Trial::test(name, move || huge_pages(Backing { pages, shared, host_node: None }, count))
                .with_ignored_flag(ignored)
        })
    });
    limits
        .map(|(limit, memory, line)| {
            let name = format!("--memory {memory} under ulimit {limit}");
            let ignored = host.skips(&name, Needs::OpenKvm);
            Trial::test(name, move || limited(limit, memory, line)).with_ignored_flag(ignored)
        })
        .into_iter()
        .chain(pools)
        .chain([watched(host)])
        .collect()
}

fn watched(host: &Host) -> Trial {
    let name = "a page that the host cannot give is named as soon as there is memory";
    let ignored = host.skips(name, Needs::OpenKvm);
    Trial::test(name, watched_early).with_ignored_flag(ignored)
}

/// When the first vCPU's thread is there, which backs memory. What is backed beforehand takes long enough to look.
fn watched_early() -> Result<(), Failed> {
    const SIGBUS: u32 = 7;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args("run --kernel kernel --memory size=1G,prefault=on --rng off --serial null".split_whitespace());
    let mut child = flatboot.current_dir(directory.path()).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let process = format!("/proc/{}", child.id());
    let has_vcpu = || {
        let tasks = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
        tasks.into_iter().any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "vcpu0\n"))
    };
    while !has_vcpu() && child.try_wait()?.is_none() {
        thread::yield_now();
    }
    let status = fs::read_to_string(format!("{process}/status"))?;
    child.kill()?;
    child.wait()?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
    let caught = u64::from_str_radix(caught.trim(), 16)?;
    assert!(caught >> (SIGBUS - 1) & 1 == 1, "{status}");
    Ok(())
}

/// `count` of the pool's pages, above 4 GiB.
fn huge_pages(backing: Backing, count: u64) -> Result<(), Failed> {
    let slots = [GpaRange::of(1 << 32, backing.pages.bytes() * count)];
    let memory = guest::map(&slots.map(|range| Slot::new(range, backing)))?;
    let prefaulting = prefault::start(&memory, &slots, backing.pages, Prefault::All, || ())?;
    prefaulting.finish()?;
    for slot in slots {
        for at in [slot.start(), slot.end() - 8] {
            assert_eq!(memory.read_obj::<u64>(GuestAddress(at))?, 0);
            memory.write_obj(at, GuestAddress(at))?;
            assert_eq!(memory.read_obj::<u64>(GuestAddress(at))?, at);
        }
        let address = memory.get_host_address(GuestAddress(slot.start()))? as u64;
        assert!(address.is_multiple_of(backing.pages.bytes()), "KVM cannot map {address:#x} by such pages");
    }
    Ok(())
}

fn limited(limit: &str, memory: &str, line: &str) -> Result<(), Failed> {
    let files = Files::new();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\""), FLATBOOT]);
    let arguments = files.with_defaults(["run", "--memory", memory].map(OsString::from).to_vec());
    let line = format!("--memory: the host cannot map 536870912 bytes of guest memory at GPA 0x…; {line}");
    files.refused(command, &arguments, ERROR, &line)
}
