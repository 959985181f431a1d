// SPDX-License-Identifier: Apache-2.0
//! Debian's kernel for clouds with the series: `make vm KERNEL=cloud`. What other tests show of the memmap and of Debian, they show
//! of this kernel then; here is what only a distribution's kernel has.

use std::fs;
use std::time::Duration;

use flatboot_bench::{artifact, guest};
use libtest_mimic::Failed;

use super::api;
use super::lab::{Lab, require};
use crate::Body;

const TESTS: &[(&str, Body)] = &[
    ("cloud::modules_are_loaded_and_work", modules),
    ("cloud::the_kernel_lies_elsewhere_at_each_boot", randomized),
    ("cloud::where_it_unpacked_itself_memory_is_not_zero", unpacked),
    ("cloud::the_memmap_of_the_memmap_is_deferred", of_itself),
    ("cloud::a_pause_is_no_lockup", pause),
];

/// None of these where the guest's kernel is the small one, which has no modules.
pub(crate) fn tests() -> &'static [(&'static str, Body)] {
    if artifact::guest_modules().is_some() { TESTS } else { &[] }
}

/// The disk and the generator have their drivers in modules.
fn modules(lab: &Lab) -> Result<(), Failed> {
    let path = lab.path("cloud.img");
    fs::write(&path, vec![0x3c; 1 << 20])?;
    let guest = lab.guest().options(["--disk".to_owned(), format!("path={}", path.display())]);
    let checks = "loaded=virtio_mmio:virtio_blk:virtio_rng:pvpanic_mmio,disk=/dev/vda,rng,calm";
    let ended = lab.passes(&guest.checks(checks))?;
    let report = ended.report("disk").ok_or("no report")?;
    require(report["first"] == "3c".repeat(16), || format!("disk: {report}"))
}

/// The image in /boot, which randomizes where it unpacks itself to, has found another place in one of three boots.
fn randomized(lab: &Lab) -> Result<(), Failed> {
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let mut guest = lab.guest();
        guest.kernel = lab.kernel.join("bzImage");
        let ended = lab.passes(&guest.checks("text"))?;
        addresses.push(ended.report("text").ok_or("no report")?["address"].clone());
    }
    require(addresses.iter().any(|address| *address != addresses[0]), || format!("always at {addresses:?}"))
}

/// What unpacks the kernel leaves more behind than the kernel keeps. Where it finds a place only in the 64 MiB that the VMM says are
/// zero, and those are nearly full of it, the kernel does not take that for zero.
fn unpacked(lab: &Lab) -> Result<(), Failed> {
    for _ in 0..6 {
        let mut guest = lab.guest().memory("size=576M").cmdline("memmap=416M$96M");
        guest.kernel = lab.kernel.join("bzImage");
        guest.limit = Duration::from_secs(120);
        let ended = lab.passes(&guest.checks("text,calm"))?;
        let physical = &ended.report("text").ok_or("no report")?["physical"];
        require(physical.as_u64() >= Some(4 << 30), || format!("it lies at {physical}"))?;
    }
    Ok(())
}

/// Memory can be taken away from this kernel, so the memmap's own struct pages are set up: with their sections, and not early. Of 256
/// GiB less than one is not deferred when init begins.
fn of_itself(lab: &Lab) -> Result<(), Failed> {
    let guest = lab.guest().memory("size=256G").cmdline("memmap_init=ondemand");
    let ended = lab.passes(&guest.checks("meminfo,memmap,calm"))?;
    let report = ended.report("meminfo").ok_or("no report")?;
    let kib = |name: &str| report[name].as_u64().unwrap_or(0);
    require(kib("total_kib") - kib("deferred_kib") < 1 << 20 && kib("deferred_kib") > 0, || format!("{report}"))
}

/// The guest's watchdog hears of a pause, which it would take for a processor that is locked up: of six seconds, where four are too
/// many (`KVM_KVMCLOCK_CTRL`).
fn pause(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
put vm.boot; until_it grep -q '"begun":true' console
for again in 1 2; do put vm.pause; sleep 6; put vm.resume; sleep 4; done
printf stop | dd of=disk bs=4096 seek=255 conv=notrunc status=none; wait $pid; cat console
"#;
    let checks = "flatboot.check=watchdog=2,pulse=/dev/vda,calm flatboot.end=poweroff";
    let outcome = lab.shell(&api::script(lab, checks, rest))?;
    let said = outcome.stdout_text();
    let passed: Vec<_> = guest::reports(&said).into_iter().filter(|report| report["ok"] == true).collect();
    let has_passed = |name: &str| passed.iter().any(|report| report["check"] == name);
    require(outcome.code == 0 && ["watchdog", "pulse", "calm"].into_iter().all(has_passed), || {
        format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr))
    })
}
