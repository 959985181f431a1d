// SPDX-License-Identifier: Apache-2.0
//! A sweep of real VMMs: flatboot and QEMU's microvm, with the same guest.

use std::process::{Command, Stdio};

use flatboot_bench::results::{self, End, Results, Sample};
use flatboot_bench::sweep::SWITCHES;
use libtest_mimic::Failed;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("sweep::flatboot_and_qemu", flatboot_and_qemu),
    ("sweep::each_part_can_be_switched_off", each_part),
    ("sweep::restored_and_resized", restored_and_resized),
];

/// Sweeps 512 MiB with `arguments` besides.
fn sweep(lab: &Lab, name: &str, arguments: &[&str]) -> Result<Results, Failed> {
    let out = lab.path(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
    command.args(["run", "--memory", "512M", "--runs", "1"]).args(arguments).arg("--out").arg(&out);
    let output = command.stdin(Stdio::null()).output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    require(output.status.success(), said)?;
    Ok(results::load(&out)?)
}

/// Every word of the list is one that flatboot and the kernel take, and init is reached without that part. With the memmap
/// filled: so the mark that says so has come, whenever that was.
fn each_part(lab: &Lab) -> Result<(), Failed> {
    let results = sweep(lab, "parts.json", &["--vmm", "flatboot", "--without", "all", "--until", "filled"])?;
    require(results.sweep.variants.len() == SWITCHES.len() + 1, || format!("{:?}", results.sweep.variants))?;
    for boot in &results.boots {
        let variant = &results.sweep.variants[boot.variant];
        match &boot.end {
            End::Init(sample) => {
                let ends = sample.marks.iter().filter(|mark| mark.guest && mark.name == "deferred-end").count();
                require(ends == 1, || format!("{variant:?}: {ends} marks that all is filled: {sample:?}"))?;
            }
            End::Failed { why, console } => {
                return Err(format!("{variant:?}: {why}\n{}", console.join("\n")).into());
            }
        }
    }
    Ok(())
}

/// The results of VMs that are restored and resized.
const STARTS: &str = "starts.json";

/// How often times are compared: a machine that is busy with something else for a minute may hold one of them up.
const COMPARED: usize = 3;

/// From a snapshot as large, or smaller, a guest answers long before another has booted; and memory comes and goes.
fn restored_and_resized(lab: &Lab) -> Result<(), Failed> {
    if !lab.kernel_has("CONFIG_MEMMAP_HELD")? {
        return Err("the guest kernel has no CONFIG_MEMMAP_HELD".into());
    }
    for _ in 1..COMPARED {
        let Some(seen) = held_up(lab)? else { return Ok(()) };
        eprintln!("AGAIN: {seen}");
        std::fs::remove_file(lab.path(STARTS))?;
    }
    held_up(lab)?.map_or(Ok(()), |seen| Err(seen.into()))
}

/// What was seen, if something did not take less time than a boot.
fn held_up(lab: &Lab) -> Result<Option<String>, Failed> {
    let starts = ["--mode", "async", "--start", "boot,restore,restore=384M", "--resize", "512M:1G,1G:512M"];
    let results = sweep(lab, STARTS, &starts)?;
    // Of both rounds the shorter: what holds a machine up for a moment only adds.
    let mut samples: Vec<(String, &Sample)> = Vec::new();
    for (number, variant) in results.sweep.variants.iter().enumerate() {
        let mut both = Vec::new();
        for boot in results.boots.iter().filter(|boot| boot.variant == number) {
            match &boot.end {
                End::Init(sample) => both.push(sample),
                End::Failed { why, console } => {
                    return Err(format!("{}: {why}\n{}", variant.started(), console.join("\n")).into());
                }
            }
        }
        let least = both.into_iter().min_by_key(|sample| sample.init_ns).ok_or("no boot")?;
        samples.push((variant.started(), least));
    }
    let seen = || format!("{samples:?}");
    let [(_, booted), (same, restored), (smaller, grown), (more, up), (less, down)] = &samples[..] else {
        return Err(seen().into());
    };
    let names = [", restored", ", restored from 384 MiB", ", resized from 512 MiB", ", resized from 1 GiB"];
    require([same, smaller, more, less].into_iter().eq(names), seen)?;
    for sample in [restored, grown] {
        require(sample.first_instruction_ns.is_some_and(|first| first < sample.init_ns), seen)?;
        require(!sample.by_mark, seen)?;
    }
    require(booted.by_mark && !up.by_mark && !down.by_mark, seen)?;
    let is_short = [restored, grown, up].iter().all(|sample| sample.init_ns < booted.init_ns);
    Ok((!is_short).then(seen))
}

fn flatboot_and_qemu(lab: &Lab) -> Result<(), Failed> {
    let results = sweep(lab, "sweep.json", &["--mode", "parallel", "--vmm", "flatboot,qemu"])?;
    require(results.boots.len() == 4, || format!("{} boots", results.boots.len()))?;
    for boot in &results.boots {
        let variant = &results.sweep.variants[boot.variant];
        match &boot.end {
            End::Init(sample) => is_plausible(&variant.vmm, sample)?,
            End::Failed { why, console } => {
                return Err(format!("{}: {why}\n{}", variant.vmm, console.join("\n")).into());
            }
        }
    }
    Ok(())
}

/// What must hold of any boot, however slow the machine is.
fn is_plausible(vmm: &str, sample: &Sample) -> Result<(), Failed> {
    let wrong = |what: &str| format!("{vmm}: {what}: {sample:?}");
    require(sample.by_mark, || wrong("no mark says that init was reached"))?;
    require(sample.init_ns < sample.console_ns, || wrong("init's line came before init"))?;
    // The kernel image alone is larger than the one, all of the guest and any VMM smaller than the other.
    require((16 << 20..1 << 30).contains(&sample.host_memory_bytes), || wrong("host memory"))?;
    require(sample.marks.is_sorted_by_key(|mark| mark.ns), || wrong("marks are not in time order"))?;
    require(sample.first_instruction_ns.is_some() == (vmm == "flatboot"), || wrong("first instruction"))?;
    let entry = sample.marks.iter().find(|mark| mark.name == "kernel-entry").map(|mark| mark.ns);
    require(entry.is_some_and(|entry| entry < sample.init_ns), || wrong("kernel-entry"))?;
    require(sample.first_instruction_ns <= entry, || wrong("the kernel ran before the first instruction"))
}
