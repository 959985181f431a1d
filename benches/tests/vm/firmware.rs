// SPDX-License-Identifier: Apache-2.0
//! UEFI firmware: the same guests come up through it, under flatboot and under QEMU's microvm, with the same regions.

use std::fs;

use flatboot_bench::guest::{Ended, Guest};
use libtest_mimic::Failed;
use serde_json::Value;

use super::handoff;
use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("firmware::cpus_1", |lab| boots(lab, 1, "1G")),
    ("firmware::cpus_16", |lab| boots(lab, 16, "1G")),
    ("firmware::memory_512M_regions_as_in_a_direct_boot", |lab| same_regions(lab, "512M", "holes=0")),
    ("firmware::memory_513M_regions_as_in_a_direct_boot", |lab| same_regions(lab, "513M", "holes=0")),
    ("firmware::memory_with_holes_regions_as_in_a_direct_boot", |lab| same_regions(lab, "8G", "holes=7")),
    ("firmware::memory_256G_regions_as_in_a_direct_boot", |lab| same_regions(lab, "256G", "holes=0")),
    ("firmware::timeline_has_its_phases_in_order", timeline),
    ("firmware::without_a_plan_regions_follow_from_the_memory_map", without_a_plan),
    ("firmware::generation", |lab| lab.passes(&guest(lab)?.checks("driver=vmgenid,calm")).map(drop)),
    ("firmware::a_malformed_plan_is_refused", malformed_plans),
    ("firmware::nothing_to_boot", nothing_to_boot),
    ("firmware::a_disk_without_a_loader", no_loader),
    ("firmware::the_same_image_under_qemu_microvm", qemu_microvm),
];

/// What firmware says when it found nothing to boot, and flatboot's exit status then.
const NOTHING: (u8, &str) = (7, "nothing to boot");

/// A guest whose kernel the firmware fetches from flatboot.
pub(crate) fn guest(lab: &Lab) -> Result<Guest, Failed> {
    let mut guest = lab.guest();
    guest.kernel = lab.kernel.join("bzImage");
    guest.firmware = Some(lab.firmware()?.to_owned());
    Ok(guest)
}

fn boots(lab: &Lab, cpus: u8, memory: &str) -> Result<(), Failed> {
    let guest = guest(lab)?.cpus(cpus.into()).memory(&format!("size={memory}"));
    let ended = lab.passes(&guest.checks(&format!("cpus={cpus},meminfo,dmesg=memmap_handoff: ,nodmesg=ignored")))?;
    let line = ended.report("dmesg").map(|report| report["lines"].to_string()).unwrap_or_default();
    require(line.contains(" regions, "), || line)
}

/// The kernel's lists of regions and arenas.
pub(crate) fn described(ended: &Ended) -> Result<(Vec<String>, Vec<String>), Failed> {
    let files = &ended.report("handoff").ok_or("no report of the hand-off")?["files"];
    let lines = |name: &str| -> Vec<String> {
        let text = files[format!("memmap_handoff/{name}").as_str()].as_str().unwrap_or_default();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    Ok((lines("regions"), lines("arenas")))
}

/// The regions are those of a direct boot, each with its flags; so are the arenas, unless the only memory that there is for them is
/// below 4 GiB, where the firmware is.
fn same_regions(lab: &Lab, memory: &str, study: &str) -> Result<(), Failed> {
    let shaped = |guest: Guest| guest.memory(&format!("size={memory}")).options(["--study", study]).checks("handoff");
    let direct = described(&lab.passes(&shaped(lab.guest()))?)?;
    let firmware = described(&lab.passes(&shaped(guest(lab)?))?)?;
    require(!direct.0.is_empty() && direct.0 == firmware.0, || format!("regions: {direct:?}, firmware: {firmware:?}"))?;
    let low_only = direct.0.len() == 1;
    require(low_only || direct.1 == firmware.1, || format!("arenas: {direct:?}, firmware: {firmware:?}"))
}

fn timeline(lab: &Lab) -> Result<(), Failed> {
    let file = lab.path("firmware-timeline.json");
    let ended = lab.passes(&guest(lab)?.checks("cpus=2").timeline(&file))?;
    let timeline = ended.timeline.ok_or("no timeline")?;
    let expected = [
        "configuration valid",
        "first KVM_RUN",
        "firmware-entry",
        "firmware-pei",
        "firmware-dxe",
        "firmware-plan",
        "firmware-backed",
        "firmware-bds",
        "firmware-loader",
        "firmware-end",
        "kernel-entry",
        "init-exec",
    ];
    let mut before = 0;
    for name in expected {
        let at = timeline.at(name).ok_or_else(|| format!("no mark {name:?} in {:?}", timeline.marks))?;
        require(at >= before, || format!("{name:?} at {at} ns comes too early: {:?}", timeline.marks))?;
        before = at;
    }
    Ok(())
}

/// One region below 4 GiB and one from there up, neither said to be zero; no arena.
fn without_a_plan(lab: &Lab) -> Result<(), Failed> {
    let guest = guest(lab)?.memory("size=2G").options(["--study", "handoff=off"]);
    let (regions, arenas) = described(&lab.passes(&guest.checks("handoff"))?)?;
    let expected = ["0x100000 0x1ff00000 0 0x0", "0x100000000 0x60000000 0 0x0"];
    require(regions == expected && arenas.is_empty(), || format!("{regions:?}, {arenas:?}"))
}

/// The firmware says what is wrong, makes regions of its own, and the guest boots with them. The rules that are not broken here are in the
/// firmware's own tests.
fn malformed_plans(lab: &Lab) -> Result<(), Failed> {
    let plans = [
        ("magic", "magic"),
        ("checksum", "CRC-32C"),
        ("order", "base"),
        ("base_outside_ram", "region 1"),
        ("truncated_to_39", "39 bytes"),
    ];
    for (name, word) in plans {
        let (_, table) = handoff::corrupted().find(|(broken, _)| broken == name).ok_or("no such table")?;
        let path = lab.path("plan.bin");
        fs::write(&path, table)?;
        let guest = guest(lab)?.options(["--study".to_owned(), format!("handoff_file={}", path.display())]);
        let ended = lab.passes(&guest.checks("dmesg=memmap_handoff: ,nodmesg=memmap_handoff: ignored"))?;
        let console = ended.outcome.stdout_text();
        let said = console.lines().any(|line| line.contains("flatboot: ignored: ") && line.contains(word));
        require(said, || format!("{name}: no line with {word:?} on the console:\n{console}"))?;
    }
    Ok(())
}

/// `flatboot run --firmware` with `options`, without a kernel.
fn without_kernel(lab: &Lab, options: &str) -> Result<(i32, String, String), Failed> {
    let firmware = lab.firmware()?;
    let script = format!(
        "{} run --firmware {} --cpus boot=2 --memory size=512M {options}; echo \"exit $?\"",
        lab.flatboot.display(),
        firmware.display()
    );
    let outcome = lab.shell(&script)?;
    let console = outcome.stdout_text();
    let code = console.lines().last().and_then(|line| line.strip_prefix("exit ")?.parse().ok()).unwrap_or(-1);
    Ok((code, console, String::from_utf8_lossy(&outcome.stderr).into_owned()))
}

fn gives_up(lab: &Lab, options: &str, disks: u8) -> Result<(), Failed> {
    let (code, console, stderr) = without_kernel(lab, options)?;
    let firmware_says = console.contains(&format!("{}: {disks} disks", NOTHING.1));
    let flatboot_says = stderr.lines().last().is_some_and(|line| line.contains("firmware"));
    require(code == i32::from(NOTHING.0) && firmware_says && flatboot_says, || {
        format!("exit {code}\n--- console\n{console}\n--- stderr\n{stderr}")
    })
}

fn nothing_to_boot(lab: &Lab) -> Result<(), Failed> {
    gives_up(lab, "", 0)
}

fn no_loader(lab: &Lab) -> Result<(), Failed> {
    let disk = lab.path("empty.img");
    fs::File::create(&disk)?.set_len(8 << 20)?;
    gives_up(lab, &format!("--disk path={}", disk.display()), 1)
}

/// The console of QEMU's microvm with the image as its BIOS.
fn qemu(lab: &Lab, memory: &str, cpus: u8) -> Result<String, Failed> {
    let firmware = lab.firmware()?;
    let script = format!(
        "timeout 590 qemu-system-x86_64 -M microvm,accel=kvm,x-option-roms=off,pit=off,pic=off,rtc=off,acpi=on,memory-backend=ram \
         -object memory-backend-ram,id=ram,reserve=off,size={memory} -m {memory} -cpu host -smp {cpus} -nodefaults \
         -no-user-config -display none -no-reboot -serial stdio -bios {} -kernel {} -initrd {} \
         -append 'quiet debugfs=on console=ttyS0 swiotlb=noforce io_delay=none pci=off flatboot.check=cpus={cpus},handoff'",
        firmware.display(),
        lab.kernel.join("bzImage").display(),
        lab.initramfs.display(),
    );
    let outcome = lab.shell(&script)?;
    let console = outcome.stdout_text();
    let passed = console.lines().any(|line| line.contains("\"check\":\"done\",\"ok\":true"));
    let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
    require(passed, || format!("{memory}, {cpus} vCPUs\n--- console\n{console}\n--- stderr\n{stderr}"))?;
    Ok(console)
}

fn qemu_microvm(lab: &Lab) -> Result<(), Failed> {
    for (memory, cpus) in [("512M", 1), ("4G", 16), ("256G", 2)] {
        let console = qemu(lab, memory, cpus)?;
        let handed_over = reported_regions(&console);
        require(!handed_over.is_empty(), || format!("{memory}: no regions: {console}"))?;
    }
    Ok(())
}

/// How the tiny init reported the regions on a console.
fn reported_regions(console: &str) -> String {
    let reports = console.lines().filter_map(|line| line.split_once("FLATBOOT ")).map(|(_, json)| json);
    let values = reports.filter_map(|json| serde_json::from_str::<Value>(json.trim_end()).ok());
    let handoff = values.into_iter().find(|report| report["check"] == "handoff");
    handoff.and_then(|report| report["files"]["memmap_handoff/regions"].as_str().map(str::to_owned)).unwrap_or_default()
}
