// SPDX-License-Identifier: Apache-2.0
//! Every shape of VM comes up with the memory and the processors that it was given.

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use flatboot_bench::guest::Guest;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("boots::cpus_1", |lab| boots(lab, 1, "1G")),
    ("boots::cpus_2", |lab| boots(lab, 2, "1G")),
    ("boots::cpus_4", |lab| boots(lab, 4, "1G")),
    ("boots::cpus_16", |lab| boots(lab, 16, "1G")),
    ("boots::processors_are_cores_of_one_package", processors),
    ("boots::memory_64M", |lab| boots(lab, 1, "64M")),
    ("boots::memory_256M", |lab| boots(lab, 2, "256M")),
    ("boots::memory_3G", |lab| boots(lab, 2, "3G")),
    ("boots::memory_ragged_5G_4M", |lab| boots(lab, 2, "5124M")),
    ("boots::memory_64G", |lab| boots(lab, 2, "64G")),
    ("boots::memory_256G", |lab| boots(lab, 2, "256G")),
    ("boots::memory_shared", |lab| boots(lab, 2, "1G,shared=on")),
    ("boots::memory_prefaulted_arenas", |lab| studied(lab, "4G", "prefault_arenas=on")),
    ("boots::memory_with_holes", |lab| studied(lab, "8G", "holes=7")),
    ("boots::bzimage", bzimage),
    ("boots::unmodified_debian_cloud_kernel", debian_cloud_kernel),
    ("boots::twenty_in_a_row", twenty_in_a_row),
    ("boots::every_page_of_4G_can_be_written", every_page),
    ("boots::timeline_is_complete_and_in_order", timeline),
];

/// The size in KiB that starts the value of `--memory`.
fn kib(memory: &str) -> u64 {
    let size = memory.split(',').next().unwrap_or_default();
    let (number, unit) = size.split_at(size.len() - 1);
    let number: u64 = number.parse().unwrap_or(0);
    if unit == "G" { number << 20 } else { number << 10 }
}

fn boots(lab: &Lab, cpus: u8, memory: &str) -> Result<(), Failed> {
    has_memory(lab, lab.guest(), cpus, memory)
}

fn studied(lab: &Lab, memory: &str, study: &str) -> Result<(), Failed> {
    has_memory(lab, lab.guest().options(["--study", study]), 2, memory)
}

fn has_memory(lab: &Lab, guest: Guest, cpus: u8, memory: &str) -> Result<(), Failed> {
    let guest = guest.cpus(cpus.into()).memory(&format!("size={memory}"));
    let ended = lab.passes(&guest.checks(&format!("cpus={cpus},meminfo")))?;
    let meminfo = ended.report("meminfo").ok_or("no meminfo")?;
    let present: u64 = zones(meminfo).iter().filter_map(|zone| zone["present"].as_u64()).sum();
    // All but the legacy hole of 384 KiB and the first page is present, whatever the kernel then reserves of it.
    let missing = kib(memory).saturating_sub(present * 4);
    require(missing < 1024, || format!("{missing} KiB of {memory} are not in any zone: {meminfo}"))?;
    // Nothing can be hot-added, so that memory blocks, which are devices, need not be small.
    let few = (1..=32).contains(&meminfo["blocks"].as_u64().unwrap_or(0));
    require(few, || format!("{} memory blocks in sysfs", meminfo["blocks"]))
}

/// What the kernel makes of CPUID is what flatboot means, with a number of vCPUs for which APIC ids have bits to spare, too.
fn processors(lab: &Lab) -> Result<(), Failed> {
    for cpus in [1, 3, 4] {
        let ended = lab.passes(&lab.guest().cpus(cpus.into()).checks("processors,nodmesg=[Firmware Bug]"))?;
        let report = ended.report("processors").ok_or("no report")?;
        let said = report["processors"].as_array().ok_or("no processors")?;
        require(said.len() == usize::from(cpus), || format!("{report}"))?;
        for (index, processor) in said.iter().enumerate() {
            require(is_core(processor, index, cpus), || format!("{cpus} vCPUs, number {index}: {processor}"))?;
        }
    }
    Ok(())
}

/// The one that takes KVM with nested virtualization.
pub(crate) fn nested() -> Trial {
    Trial::ignorable_test("boots::processors_run_vms_unless_told_not_to", || run_vms(Lab::get()?))
}

/// What KVM has for guests that run VMs reaches them, and with `nested=off` they see nothing of it.
fn run_vms(lab: &Lab) -> Result<Completion, Failed> {
    let runs_vms = |keys: &str| -> Result<bool, Failed> {
        let mut guest = lab.guest().checks("processors,calm");
        keys.clone_into(&mut guest.cpu_keys);
        let ended = lab.passes(&guest)?;
        let flags = ended.report("processors").and_then(|report| report["flags"].as_array()).ok_or("no flags")?;
        require(flags.iter().any(|flag| flag == "hypervisor"), || format!("{flags:?}"))?;
        Ok(flags.iter().any(|flag| flag == "svm" || flag == "vmx"))
    };
    if !runs_vms(",nested=on")? {
        return Ok(Completion::ignored_with("this host's KVM has nested virtualization off"));
    }
    require(!runs_vms(",nested=off")?, || "nested=off: the guest sees svm or vmx".to_owned())?;
    Ok(Completion::Completed)
}

/// A core of the one package, with two levels of caches of its own.
fn is_core(processor: &Value, index: usize, cpus: u8) -> bool {
    let own = ["processor", "apic_id", "core"].iter().all(|name| processor[*name] == index);
    let package = ["threads_of_package", "cores_of_package"].iter().all(|name| processor[*name] == cpus);
    let everybody = if cpus == 1 { "0".to_owned() } else { format!("0-{}", cpus - 1) };
    let shared = |level: u64| if level < 3 { index.to_string() } else { everybody.clone() };
    let right = |cache: &Value| cache["shared"] == shared(cache["level"].as_u64().unwrap_or(0));
    let caches = processor["caches"].as_array().is_some_and(|caches| !caches.is_empty() && caches.iter().all(right));
    own && package && processor["package"] == 0 && caches
}

fn zones(meminfo: &Value) -> Vec<Value> {
    meminfo["zones"].as_array().cloned().unwrap_or_default()
}

fn bzimage(lab: &Lab) -> Result<(), Failed> {
    let mut guest = lab.guest().checks("cpus=2,meminfo");
    guest.kernel = lab.kernel.join("bzImage");
    lab.passes(&guest).map(drop)
}

/// One vCPU: this kernel patches its own code (jump labels), which multi-threaded emulation does not do safely.
fn debian_cloud_kernel(lab: &Lab) -> Result<(), Failed> {
    let mut guest = lab.guest().cpus(1).checks("cpus=1,meminfo,uname");
    guest.kernel = flatboot_bench::artifact::debian_cloud_kernel()?;
    let ended = lab.passes(&guest)?;
    let release = ended.report("uname").map(|uname| uname["release"].to_string()).unwrap_or_default();
    require(release.contains("cloud"), || format!("booted {release}"))
}

fn twenty_in_a_row(lab: &Lab) -> Result<(), Failed> {
    for run in 1..=20 {
        let ended = lab.passes(&lab.guest().memory("size=512M").checks("cpus=2"));
        ended.map_err(|error| format!("boot {run} of 20: {}", error.message().unwrap_or_default()))?;
    }
    Ok(())
}

fn every_page(lab: &Lab) -> Result<(), Failed> {
    let ended = lab.passes(&lab.guest().memory("size=4G,thp=all").checks("alloc"))?;
    let alloc = ended.report("alloc").ok_or("no alloc")?;
    let pages = alloc["pages"].as_u64().unwrap_or(0);
    // What is left is the memmap, the kernel and the allocator's own reserve.
    require(pages * 4 > kib("4G") * 9 / 10, || format!("only {pages} pages of 4 GiB could be written: {alloc}"))
}

fn timeline(lab: &Lab) -> Result<(), Failed> {
    let file = lab.path("timeline.json");
    let ended = lab.passes(&lab.guest().checks("cpus=2,settle").timeline(&file))?;
    let timeline = ended.timeline.ok_or("no timeline")?;
    let expected = [
        "configuration valid",
        "vCPU threads started",
        "first KVM_RUN",
        "kernel-entry",
        "memory-map-ready",
        "memmap-begin",
        "memmap-end",
        "smp-begin",
        "smp-end",
        "init-exec",
        "deferred-begin",
        "user-start",
        "user-ready",
    ];
    let mut before = 0;
    for name in expected {
        let at = timeline.at(name).ok_or_else(|| format!("no mark {name:?} in {:?}", timeline.marks))?;
        require(at >= before, || format!("{name:?} at {at} ns comes too early: {:?}", timeline.marks))?;
        before = at;
    }
    // The memmap is filled while init runs, and init waits for that before it is ready.
    let filled = timeline.at("deferred-end").ok_or("no mark deferred-end")?;
    let between = timeline.at("deferred-begin")..timeline.at("user-ready");
    require(between.contains(&Some(filled)), || format!("deferred-end at {filled} ns: {:?}", timeline.marks))?;
    require(timeline.init_ns == timeline.at("init-exec"), || "init_ns is not the mark of init".to_owned())
}
