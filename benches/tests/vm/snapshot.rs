// SPDX-License-Identifier: Apache-2.0
//! VMs that are saved, and go on from there: after their VMM has ended, several times, and however large they are.

use std::fs;
use std::path::Path;
use std::time::Duration;

use flatboot_bench::{Command, HostOptions, guest};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::api::{prints, script};
use super::lab::{Lab, in_memory, on_emulated_host, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("snapshot::a_guest_goes_on_under_another_vmm", goes_on),
    ("snapshot::two_of_one_are_two", twice),
    ("snapshot::a_large_vm_is_what_its_guest_has_touched", large),
    ("snapshot::who_is_killed_leaves_none", killed),
];

/// Processors that cannot take on what was on the default one, and why.
const PROCESSORS: [(&str, &str); 2] = [
    ("max,-avx2", "features 0x20 of CPUID leaf 0x7.0, EBX: this host's KVM does not have them"),
    ("EPYC", "must be the same here, which is AuthenticAMD family 0x17 model 0x1"),
];

pub(crate) fn another_processor() -> Trial {
    let why = "this machine has one processor model: only emulated hosts differ";
    on_emulated_host("snapshot::another_processor_refuses_it", why, refused)
}

/// A guest that counts, holds memory and writes to a disk until it is told to stop; then it looks around.
const BUSY: &str = "flatboot.check=pulse=/dev/vda,rng,cpus=2,generation,dmesg=fork,calm flatboot.end=poweroff";

/// Words for these scripts: the VM is saved at `snap`; a disk's guest is told to stop.
const SAVE: &str = r#"
save() { put vm.pause; put vm.snapshot "{\"destination_url\": \"file://$PWD/snap\"}"; [ "$(ls snap | tr '\n' ' ')" = "memory state " ]; }
stop() { printf stop | dd of="$1" bs=4096 seek=255 conv=notrunc status=none; }
"#;

/// What a guest has reported, on whose console `said` is.
fn passed(said: &str, checks: &[&str], seen: impl Fn() -> String) -> Result<Vec<Value>, Failed> {
    let reports = guest::reports(said);
    for check in checks {
        let passed = reports.iter().any(|report| report["check"] == *check && report["ok"] == true);
        require(passed, || format!("{check}: {}", seen()))?;
    }
    Ok(reports)
}

const CHECKS: [&str; 6] = ["pulse", "rng", "cpus", "generation", "dmesg", "calm"];

fn goes_on(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{SAVE}
put vm.boot; until_it grep -q '"begun":true' console
put vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}" 2>/dev/null | grep -q 'the VM is running: must be paused'
save; is Paused
put vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}" 2>/dev/null | grep -q 'not an empty directory'
kill -9 $pid; ! wait $pid; rm socket; sleep 2
{flatboot} --api-socket path=socket & pid=$!
until_it answers
put vm.restore "{{\"source_url\": \"file://$PWD/snap\"}}"; is Paused
# Its processors' clocks go alike, by what the host's kernel says of them.
offsets=$(cat /sys/kernel/debug/kvm/$pid-*/vcpu*/tsc-offset); echo "offsets: "$offsets
[ "$(echo "$offsets" | wc -l)" = 2 ]; [ "$(echo "$offsets" | sort -u | wc -l)" = 1 ]
lines=$(wc -l <console); sleep 1; [ "$lines" = "$(wc -l <console)" ]
put vm.resume; is Running; sleep 2
put vm.pause; put vm.resume; sleep 1
stop disk; wait $pid; cat console
"#,
        flatboot = lab.flatboot.display(),
    );
    let outcome = lab.shell(&script(lab, BUSY, &rest))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let reports = passed(&said, &CHECKS, seen)?;
    // Its clock has been told of the time between.
    let pulse = reports.iter().find(|report| report["jumps"].is_u64()).ok_or("no report of the clock")?;
    require(pulse["jumped_ns"].as_u64().is_some_and(|jumped| jumped >= 2_000_000_000), seen)
}

/// At the same time, each with a disk of its own; and each knows that it is another one.
fn twice(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{SAVE}
put vm.boot; until_it grep -q '"begun":true' console
save; put vmm.shutdown; wait $pid
for name in one two; do
    cp disk disk-$name
    {flatboot} run --restore snap --disk path=disk-$name --serial file=$name & eval pid_$name=$!
done
sleep 3
stop disk-one; wait $pid_one; stop disk-two; wait $pid_two
! {flatboot} run --restore snap --disk path=none --serial null 2>error; grep -q 'none: there is no such file' error
printf X | dd of=snap/state bs=1 seek=200 conv=notrunc status=none
! {flatboot} run --restore snap --serial null 2>error; grep -q 'is damaged' error; [ "$(wc -l <error)" = 1 ]
cat one; echo; echo SECOND; cat two
"#,
        flatboot = lab.flatboot.display(),
    );
    let outcome = lab.shell(&script(lab, BUSY, &rest))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let (one, two) = said.split_once("SECOND").ok_or_else(seen)?;
    let number = |said: &str| {
        let reports = passed(said, &CHECKS, seen)?;
        let number = reports.iter().find_map(|report| report["id"].as_str().map(str::to_owned));
        number.ok_or_else(|| Failed::from(seen()))
    };
    let (one, two) = (number(one)?, number(two)?);
    require(one != two && one.len() == 32, || format!("{one} and {two}: {}", seen()))
}

/// Saved on one host, and taken to hosts with other processors in an archive; a host like the first goes on with it.
fn refused(lab: &Lab) -> Result<(), Failed> {
    let saved = format!(
        r#"{SAVE}
put vm.boot; until_it grep -q '"begun":true' console
save; put vmm.shutdown; wait $pid
tar --sparse -cf '{archive}' snap disk; echo saved
"#,
        archive = lab.path("another-processor.tar").display(),
    );
    prints(lab, &script(lab, BUSY, &saved), "saved")?;
    let archive = lab.path("another-processor.tar");
    let outcome = (|| {
        for (cpu, why) in PROCESSORS {
            let (code, said) = restored(lab, cpu, &archive)?;
            let one_line = said.lines().count() == 1 && said.contains(why) && said.contains("snap");
            require(code == 1 && one_line, || format!("{cpu}: exit code {code}: {said}"))?;
        }
        let (code, said) = restored(lab, HostOptions::default().cpu, &archive)?;
        require(code == 0, || format!("the same processor: exit code {code}: {said}"))
    })();
    fs::remove_file(&archive)?;
    outcome
}

/// What flatboot's exit code is on a host with processors of `cpu`, and what it says.
fn restored(lab: &Lab, cpu: &'static str, archive: &Path) -> Result<(u8, String), Failed> {
    let script = format!(
        r"
tar -xf '{archive}'
(sleep 2; printf stop | dd of=disk bs=4096 seek=255 conv=notrunc status=none) &
'{flatboot}' run --restore snap --disk path=disk --serial null",
        archive = archive.display(),
        flatboot = lab.flatboot.display(),
    );
    let command = Command::new("/bin/sh").args(["-c", &in_memory(":", &script)]).timeout(Duration::from_secs(120));
    let outcome = lab.on_host(HostOptions { cpu, ..HostOptions::default() }, &command)?;
    Ok((outcome.code, String::from_utf8_lossy(&outcome.stderr).into_owned()))
}

/// As large as what flatboot has of the host, and some of that is not the guest's.
fn large(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{SAVE}
put vm.delete
put vm.create "$(echo "$config" | sed 's/"size": 1073741824/"size": 68719476736/')"
put vm.boot; until_it grep -q '"begun":true' console
put vm.pause
resident=$(grep VmRSS /proc/$pid/status | tr -dc 0-9)
put vm.resume; save; put vmm.shutdown; wait $pid
size=$(du -k snap/memory | cut -f1); whole=$(stat -c %s snap/memory)
[ "$whole" = $((68719476736 + 4096)) ]
echo "touched $resident KiB, saved $size KiB" >&2
[ "$size" -le "$resident" ] && [ "$size" -ge $((resident / 4)) ] && [ "$size" -le 262144 ]
{flatboot} run --restore snap,prefault=on --serial file=after & pid=$!
sleep 2; stop disk; wait $pid; grep -c '"check":"pulse".*"ok":true' after
"#,
        flatboot = lab.flatboot.display(),
    );
    let cmdline = "memmap_init=ondemand flatboot.check=pulse=/dev/vda flatboot.end=poweroff";
    prints(lab, &script(lab, cmdline, &rest), "1")
}

/// Killed when it has begun to write: there is nothing of that name, and the next one takes the place of what is left.
fn killed(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{SAVE}
put vm.boot; until_it inits 1; put vm.pause
curl --silent --unix-socket socket -X PUT http://localhost/api/v1/vm.snapshot -d "{{\"destination_url\": \"file://$PWD/snap\"}}" &
until [ -e .snap.partial ]; do :; done; kill -9 $pid; ! wait $pid
[ -d .snap.partial ] && [ ! -e snap ]
rm socket
{flatboot} --api-socket path=socket & pid=$!
until_it answers
! put vm.restore "{{\"source_url\": \"file://$PWD/snap\"}}" >/dev/null 2>&1
put vm.create "$config"; put vm.boot; until_it inits 1
save; [ ! -e .snap.partial ]
put vmm.shutdown; wait $pid; echo saved
"#,
        flatboot = lab.flatboot.display(),
    );
    prints(lab, &script(lab, "flatboot.check=take=50% flatboot.end=hang", &rest), "saved")
}
