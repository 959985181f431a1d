// SPDX-License-Identifier: Apache-2.0
//! Tables that come in another way than flatboot's own: QEMU's machines, whose `fw_cfg` or loader has them; and tables that ask for
//! more than they may have.

use std::fs;
use std::path::PathBuf;
use std::process;

use flatboot_bench::guest::Ended;
use flatboot_bench::{Command, guest};
use flatboot_handoff::{ARENA_ALIGN, Arena, FW_CFG_FILE, Region, RegionFlags, encode, encoded_len};
use libtest_mimic::Failed;

use super::lab::{LIMIT, Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("table::from_fw_cfg_of_qemu_microvm", |lab| from_fw_cfg(lab, "microvm", "qemu-microvm")),
    ("table::from_fw_cfg_of_qemu_q35", |lab| from_fw_cfg(lab, "q35", "qemu-q35")),
    ("table::from_an_address_under_qemu", from_address),
    ("table::is_believed_once_under_qemu", believed_once),
    ("table::what_fw_cfg_may_not_have", refused),
    ("table::asks_for_all_memory", asks_for_all),
    ("table::held_memory_is_in_no_memory_block", no_block_has_held),
];

const MIB: u64 = 1 << 20;
/// What the kernel says when it takes memory to be zero only if it has seen to that.
const DOUBT: &str = "memory may not be zero";
/// A place in the low memory of every machine here that nobody has: below are kernel and firmware, above is the initramfs.
const ADDRESS: u64 = 512 * MIB;

/// The table that `flatboot map` writes for a VM of 4 GiB.
fn planned(lab: &Lab, vmm: &str) -> Result<PathBuf, Failed> {
    let file = lab.path(&format!("{vmm}.bin"));
    let map = process::Command::new(&lab.flatboot)
        .args(["map", "--for", vmm, "--memory", "size=4G", "--table"])
        .arg(&file)
        .output()?;
    require(map.status.success(), || String::from_utf8_lossy(&map.stderr).into_owned())?;
    Ok(file)
}

/// A guest of 4 GiB under QEMU, which ends when it resets.
fn qemu(lab: &Lab, machine: &str, cmdline: &str, options: &[String]) -> Command {
    let console = ["-display", "none", "-nodefaults", "-no-user-config", "-serial", "stdio"];
    Command::new("qemu-system-x86_64")
        .args(["-M", &format!("{machine},accel=kvm"), "-cpu", "host", "-m", "4G", "-smp", "2"])
        .args(console)
        .arg("-kernel")
        .arg(lab.kernel.join("vmlinux"))
        .arg("-initrd")
        .arg(&lab.initramfs)
        .args(["-append", &format!("quiet console=ttyS0 reboot=t flatboot.end=reboot debugfs=on {cmdline}")])
        .args(options)
        .timeout(LIMIT)
}

fn fw_cfg(file: &std::path::Path) -> Vec<String> {
    vec!["-fw_cfg".to_owned(), format!("name={FW_CFG_FILE},file={}", file.display())]
}

/// Runs it; all its checks have to pass. Returns the one line in which the kernel speaks of a table.
fn line(lab: &Lab, command: &Command) -> Result<String, Failed> {
    let outcome = lab.with_session(|session| session.run(command))?;
    let ended = Ended { reports: guest::reports(&outcome.stdout_text()), outcome, timeline: None };
    let said = || format!("{:?}: {}", command.args, ended.outcome.stdout_text());
    require(ended.report("done").is_some_and(|done| done["ok"] == true), said)?;
    let report = ended.report("dmesg").ok_or("no report")?;
    require(report["count"] == 1, || format!("expected one line: {report}"))?;
    Ok(report["lines"][0].as_str().unwrap_or_default().to_owned())
}

const CHECKS: &str = "\"flatboot.check=dmesg=memmap_handoff: ,meminfo,calm\"";

fn from_fw_cfg(lab: &Lab, machine: &str, vmm: &str) -> Result<(), Failed> {
    let table = planned(lab, vmm)?;
    let command = |more: &str, checks| {
        let mut options = fw_cfg(&table);
        options.push("-no-reboot".to_owned());
        qemu(lab, machine, &format!("{more} {checks}"), &options)
    };
    let taken = line(lab, &command("memmap_handoff=fw_cfg", CHECKS))?;
    require(taken.contains("1 regions, 1 arenas") && !taken.contains(DOUBT), || taken.clone())?;
    // Nobody looks for it who was not asked.
    let outcome =
        lab.with_session(|session| session.run(&command("", "\"flatboot.check=nodmesg=memmap_handoff: ,meminfo\"")))?;
    let reports = guest::reports(&outcome.stdout_text());
    let passed = reports.iter().any(|report| report["check"] == "done" && report["ok"] == true);
    require(passed, || outcome.stdout_text())
}

/// QEMU's loader writes the same table to the same place.
fn from_address(lab: &Lab) -> Result<(), Failed> {
    let table = planned(lab, "qemu-microvm")?;
    let loader = format!("loader,file={},addr={ADDRESS:#x},force-raw=on", table.display());
    let options = ["-device".to_owned(), loader, "-no-reboot".to_owned()];
    let taken = line(lab, &qemu(lab, "microvm", &format!("memmap_handoff={ADDRESS:#x} {CHECKS}"), &options))?;
    require(taken.contains("1 regions, 1 arenas") && !taken.contains(DOUBT), || taken.clone())
}

/// A reset clears no memory, and QEMU has the table again: the second boot takes it, and believes nothing about zeros.
fn believed_once(lab: &Lab) -> Result<(), Failed> {
    let console = lab.path("twice");
    let command =
        qemu(lab, "microvm", &format!("memmap_handoff=fw_cfg {CHECKS}"), &fw_cfg(&planned(lab, "qemu-microvm")?));
    let quoted: Vec<_> = command.args.iter().map(|arg| format!("'{}'", arg.display())).collect();
    let script = format!(
        "qemu-system-x86_64 {args} >{console} </dev/null & pid=$!; n=0; \
         until [ $(grep -c '\"check\":\"done\"' {console}) -ge 2 ]; do n=$((n+1)); [ $n -lt 1000 ] || break; sleep 0.1; done; \
         kill -KILL $pid; cat {console}",
        args = quoted.join(" "),
        console = console.display(),
    );
    let outcome = lab.shell(&script)?;
    let reports = guest::reports(&outcome.stdout_text());
    let lines: Vec<_> =
        reports.iter().filter(|report| report["check"] == "dmesg").map(|report| report["lines"].to_string()).collect();
    let taken = lines.len() >= 2 && lines.iter().all(|line| line.contains("1 regions, 1 arenas"));
    let doubted: Vec<_> = lines.iter().map(|line| line.contains(DOUBT)).take(2).collect();
    require(taken && doubted == [false, true], || format!("{lines:?}: {}", outcome.stdout_text()))
}

/// One line for each way in which the file may be none; without QEMU's device there is no file at all.
fn refused(lab: &Lab) -> Result<(), Failed> {
    let short = lab.path("short.bin");
    fs::write(&short, b"FLATBOOT")?;
    let mut old = fs::read(planned(lab, "qemu-microvm")?)?;
    old[8] = 1;
    let version = lab.path("version.bin");
    fs::write(&version, old)?;
    for (file, said) in [(&short, "of 8 bytes is no table"), (&version, "version 1, not 2")] {
        let mut options = fw_cfg(file);
        options.push("-no-reboot".to_owned());
        let line = line(lab, &qemu(lab, "microvm", &format!("memmap_handoff=fw_cfg {CHECKS}"), &options))?;
        require(line.contains("ignored: ") && line.contains(said), || line.clone())?;
    }
    let guest = lab.guest().options(["--study", "handoff=off"]).cmdline("memmap_handoff=fw_cfg");
    let ended = lab.passes(&guest.checks(&format!("dmesg=memmap_handoff: ignored: no {FW_CFG_FILE} in fw_cfg")))?;
    require(ended.report("dmesg").is_some_and(|report| report["count"] == 1), || format!("{:?}", ended.reports))
}

/// All of a VM of 1 GiB as arenas: the kernel takes what its memmap needs and has the rest for itself.
fn asks_for_all(lab: &Lab) -> Result<(), Failed> {
    let region = |base, length, flags| Region { base: base * MIB, length: length * MIB, node: 0, flags };
    let regions = [region(1, 511, RegionFlags::empty()), region(4096, 512, RegionFlags::empty())];
    let arena = |base: u64, length: u64| Arena { base: base * MIB, length: length * MIB, node: 0 };
    let halves = [arena(2, 510), arena(4096, 512)];
    let pieces: Vec<_> = (1..256)
        .chain(2048..2304)
        .map(|piece| Arena { base: piece * ARENA_ALIGN, length: ARENA_ALIGN, node: 0 })
        .collect();
    for arenas in [&halves[..], &pieces[..]] {
        let mut table = vec![0; encoded_len(regions.len(), arenas.len())];
        encode(&regions, arenas, &mut table)?;
        let file = lab.path("greedy.bin");
        fs::write(&file, table)?;
        let guest = lab.guest().memory("size=1G,thp=all");
        let guest = guest.options(["--study".to_owned(), format!("handoff_file={}", file.display())]);
        let ended =
            lab.passes(&guest.checks("dmesg=bytes of the arenas are more than they may have,meminfo,alloc,calm"))?;
        let total = ended.report("meminfo").and_then(|meminfo| meminfo["total_kib"].as_u64()).unwrap_or_default();
        require(total > 900 << 10, || format!("MemTotal {total} KiB"))?;
    }
    Ok(())
}

/// Held memory may begin right behind RAM. A memory block, which an administrator can take offline as a whole, has none of it, and is
/// smaller than it would be.
fn no_block_has_held(lab: &Lab) -> Result<(), Failed> {
    const MEMORY: u64 = 4224;
    const BLOCK: u64 = 128;
    let region = |base, length, flags| Region { base: base * MIB, length: length * MIB, node: 0, flags };
    let low = region(1, 511, RegionFlags::empty());
    let high = region(4096, MEMORY - 512, RegionFlags::empty());
    let held = |base| region(base, 1024, RegionFlags::HELD);
    for (base, blocks) in [(8192, MEMORY / BLOCK / 2 + 1), (4096 + MEMORY - 512, MEMORY / BLOCK)] {
        let regions = [low, high, held(base)];
        let mut table = vec![0; encoded_len(regions.len(), 0)];
        encode(&regions, &[], &mut table)?;
        let file = lab.path("held.bin");
        fs::write(&file, table)?;
        let guest = lab.guest().memory(&format!("size={MEMORY}M"));
        let guest = guest.options(["--study".to_owned(), format!("handoff_file={}", file.display())]);
        let ended = lab.passes(&guest.checks("dmesg=memmap_handoff: 3 regions,meminfo,calm"))?;
        let seen = ended.report("meminfo").and_then(|meminfo| meminfo["blocks"].as_u64()).ok_or("no blocks")?;
        require(seen == blocks, || format!("held from {base} MiB: {seen} memory blocks, not {blocks}"))?;
    }
    Ok(())
}
