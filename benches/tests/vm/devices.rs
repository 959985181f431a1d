// SPDX-License-Identifier: Apache-2.0
//! Devices as a real driver meets them.

use std::fs;

use libtest_mimic::Failed;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("devices::disk_is_read_and_written", disk),
    ("devices::disk_is_erased", erased),
    ("devices::disk_with_several_queues", queues),
    ("devices::readonly_disk_stays_as_it_is", readonly),
    ("devices::most_disks", most_disks),
    ("devices::generation", |lab| lab.passes(&lab.guest().checks("driver=vmgenid,calm")).map(drop)),
    ("devices::entropy", |lab| lab.passes(&lab.guest().checks("rng")).map(drop)),
    ("devices::ip_identifiers", |lab| lab.passes(&lab.guest().checks("identifiers")).map(drop)),
    ("devices::serial_to_a_file", serial_file),
    ("devices::no_serial_port", no_serial),
];

const DISK: usize = 1 << 20;

/// A disk of 1 MiB whose every byte is `fill`.
fn image(lab: &Lab, name: &str, fill: u8) -> Result<std::path::PathBuf, Failed> {
    let path = lab.path(name);
    fs::write(&path, vec![fill; DISK])?;
    Ok(path)
}

fn disk(lab: &Lab) -> Result<(), Failed> {
    let path = image(lab, "disk.img", 0x5a)?;
    let guest = lab.guest().options(["--disk".to_owned(), format!("path={}", path.display())]);
    let ended = lab.passes(&guest.checks("disk=/dev/vda,diskwrite=/dev/vda"))?;
    let report = ended.report("disk").ok_or("no report")?;
    require(report["bytes"] == DISK as u64 && report["read_only"] == false, || format!("disk: {report}"))?;
    require(report["first"] == "5a".repeat(16), || format!("first bytes: {report}"))?;
    let after = fs::read(&path)?;
    let written = (0..4096).map(|n| u8::try_from(n % 251).unwrap_or(0));
    require(after[DISK - 4096..].iter().copied().eq(written), || "the last block is not what was written".to_owned())?;
    require(after.len() == DISK && after[..DISK - 4096].iter().all(|byte| *byte == 0x5a), || {
        "other sectors were written".to_owned()
    })
}

fn erased(lab: &Lab) -> Result<(), Failed> {
    let path = image(lab, "erased.img", 0x5a)?;
    let guest = lab.guest().options(["--disk".to_owned(), format!("path={}", path.display())]);
    let ended = lab.passes(&guest.checks("erase=/dev/vda,calm"))?;
    let report = ended.report("erase").ok_or("no report")?;
    require(report["discard_max"] == 64 << 20 && report["zeroes_max"] == 32 << 20, || report.to_string())?;
    let mut expected = vec![0x5a; DISK];
    expected[DISK / 2..][..64 << 10].fill(0);
    require(fs::read(&path)? == expected, || "the file is not what it should be".to_owned())
}

/// Each queue has a thread, and each thread several requests at once: as this host does it, and one after another.
fn queues(lab: &Lab) -> Result<(), Failed> {
    for (rest, number) in
        [("num_queues=2,queue_size=64", 2), ("num_queues=4,_disable_io_uring=on", 2), ("direct=off", 1)]
    {
        let path = image(lab, "queues.img", 0x5a)?;
        let options = ["-v".to_owned(), "--disk".to_owned(), format!("path={},{rest}", path.display())];
        let ended = lab.passes(&lab.guest().options(options).cpus(2).checks("disk=/dev/vda,beside=/dev/vda*4,calm"))?;
        let report = ended.report("disk").ok_or("no report")?;
        require(report["queues"] == number, || format!("{rest}: {report}"))?;
        let said = String::from_utf8_lossy(&ended.outcome.stderr);
        require(!said.contains("no io_uring"), || format!("{rest}: {said}"))?;
        let block = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(512);
        let there = fs::read(&path)?;
        let right = (0..).zip(there.chunks(4096)).all(|(number, there)| there == block(number));
        require(right && there.len() == DISK, || format!("{rest}: the file is not what the guest has written"))?;
    }
    Ok(())
}

fn readonly(lab: &Lab) -> Result<(), Failed> {
    let path = image(lab, "readonly.img", 0xa5)?;
    let guest = lab.guest().options(["--disk".to_owned(), format!("path={},readonly=on", path.display())]);
    let ended = lab.run(&guest.checks("disk=/dev/vda,diskwrite=/dev/vda"))?;
    let ok = |name: &str| ended.report(name).map(|report| report["ok"] == true);
    require((ok("disk"), ok("diskwrite")) == (Some(true), Some(false)), || format!("{:?}", ended.reports))?;
    let read_only = ended.report("disk").is_some_and(|report| report["read_only"] == true);
    require(read_only, || format!("{:?}", ended.reports))?;
    require(fs::read(&path)?.iter().all(|byte| *byte == 0xa5), || "a read-only disk was written".to_owned())
}

fn most_disks(lab: &Lab) -> Result<(), Failed> {
    let mut guest = lab.guest();
    let mut checks = Vec::new();
    for (index, letter) in ('a'..='m').enumerate() {
        let path = image(lab, &format!("many{index}.img"), letter as u8)?;
        guest = guest.options(["--disk".to_owned(), format!("path={}", path.display())]);
        checks.push(format!("disk=/dev/vd{letter}"));
    }
    let ended = lab.passes(&guest.checks(&checks.join(",")))?;
    let firsts: Vec<_> = ended.reports.iter().filter(|r| r["check"] == "disk").map(|r| r["first"].clone()).collect();
    let expected: Vec<_> =
        ('a'..='m').map(|letter| serde_json::json!(format!("{:02x}", letter as u8).repeat(16))).collect();
    require(firsts == expected, || format!("disks in another order: {firsts:?}"))
}

fn serial_file(lab: &Lab) -> Result<(), Failed> {
    let path = lab.path("serial.txt");
    fs::write(&path, "what was there before")?;
    let guest = lab.guest().options(["--serial".to_owned(), format!("file={}", path.display())]);
    let ended = lab.run(&guest.checks("cpus=2"))?;
    let console = fs::read_to_string(&path)?;
    let complete = console.contains("\"check\":\"done\",\"ok\":true") && !console.contains("before");
    require(ended.outcome.code == 0 && ended.outcome.stdout.is_empty() && complete, || {
        format!("exit code {}, console {console:?}", ended.outcome.code)
    })
}

fn no_serial(lab: &Lab) -> Result<(), Failed> {
    let ended = lab.run(&lab.guest().options(["--serial", "off"]))?;
    require(ended.outcome.code == 0 && ended.outcome.stdout.is_empty(), || {
        format!("exit code {}, console {:?}", ended.outcome.code, ended.outcome.stdout_text())
    })
}
