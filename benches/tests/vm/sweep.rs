// SPDX-License-Identifier: Apache-2.0
//! A sweep of real VMMs: flatboot and QEMU's microvm, with the same guest.

use std::process::{Command, Stdio};

use flatboot_bench::results::{self, End, Sample};
use libtest_mimic::Failed;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[("sweep::flatboot_and_qemu", flatboot_and_qemu)];

fn flatboot_and_qemu(lab: &Lab) -> Result<(), Failed> {
    let out = lab.path("sweep.json");
    let output = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"))
        .args(["run", "--memory", "512M", "--mode", "parallel", "--vmm", "flatboot,qemu", "--runs", "1", "--out"])
        .arg(&out)
        .stdin(Stdio::null())
        .output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    require(output.status.success(), said)?;
    let results = results::load(&out)?;
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
