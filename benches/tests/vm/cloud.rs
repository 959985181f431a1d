// SPDX-License-Identifier: Apache-2.0
//! Debian's kernel for clouds with the series: `make vm KERNEL=cloud`. What other tests show of the memmap and of Debian, they show
//! of this kernel then; here is what only a distribution's kernel has.

use std::fs;

use flatboot_bench::artifact;
use libtest_mimic::Failed;

use super::lab::{Lab, require};
use crate::Body;

const TESTS: &[(&str, Body)] = &[
    ("cloud::modules_are_loaded_and_work", modules),
    ("cloud::the_kernel_lies_elsewhere_at_each_boot", randomized),
    ("cloud::the_memmap_of_the_memmap_is_deferred", of_itself),
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

/// Memory can be taken away from this kernel, so the memmap's own struct pages are set up: with their sections, and not early. Of 256
/// GiB less than one is not deferred when init begins.
fn of_itself(lab: &Lab) -> Result<(), Failed> {
    let guest = lab.guest().memory("size=256G").cmdline("memmap_init=ondemand");
    let ended = lab.passes(&guest.checks("meminfo,memmap,calm"))?;
    let report = ended.report("meminfo").ok_or("no report")?;
    let kib = |name: &str| report[name].as_u64().unwrap_or(0);
    require(kib("total_kib") - kib("deferred_kib") < 1 << 20 && kib("deferred_kib") > 0, || format!("{report}"))
}
