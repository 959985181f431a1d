// SPDX-License-Identifier: Apache-2.0
//! Hosts whose /dev/kvm is missing, forbidden, something else, or no good.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::images;
use crate::refusal::{ERROR, Row, USAGE, matches};
use crate::times::{tell, times};
use crate::usage::Usage;

/// A guest that says that it runs, and nothing else: `mov dx, 0x3f8; mov al, 'R'; out dx, al; 1: jmp 1b`
pub(crate) const RUNS: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xfe];

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// What a test does on a host.
type Body = fn(&Host) -> Result<(), Failed>;

/// Names, what makes the host so, and what flatboot says of it.
const HOSTS: [(&str, Needs, &str); 6] = [
    (
        "missing",
        Needs::Devices("true"),
        "/dev/kvm: missing: load the kvm_intel or kvm_amd module, or enable virtualization in the firmware",
    ),
    (
        "an empty file",
        Needs::Devices(": > /dev/kvm"),
        "/dev/kvm: is something else, must be the device of the kvm module (character device 10, 232)",
    ),
    (
        "a directory",
        Needs::Devices("mkdir /dev/kvm"),
        "/dev/kvm: cannot be opened, must be the device of the kvm module: Is a directory (os error 21)",
    ),
    (
        "another device",
        Needs::Nodes("mknod /dev/kvm c 1 3"),
        "/dev/kvm: is something else, must be the device of the kvm module (character device 10, 232)",
    ),
    (
        "no permission",
        Needs::NodesUnprivileged("mknod -m 000 /dev/kvm c 10 232 && chown 0:107 /dev/kvm"),
        "/dev/kvm: no permission: it belongs to group id 107; add yourself to that group or run as root",
    ),
    (
        "unable to run guests",
        Needs::UnusableKvm,
        "/dev/kvm: opens, but … use a host with full KVM or the emulated KVM host",
    ),
];

pub(crate) fn rows(host: &Host) -> Vec<Row> {
    let mut rows: Vec<_> = HOSTS
        .into_iter()
        .flat_map(|(name, needs, line)| {
            // What is wrong with an image comes before what is wrong with the host.
            let image = "run --kernel @/text";
            let first =
                Row::new(&format!("/dev/kvm: {name}: image first"), image, ERROR, "kernel @/text: not a kernel: …");
            let run = Row::new(&format!("/dev/kvm: {name}: run"), "run --kernel @/bzimage", ERROR, line);
            // Whether KVM runs guests is found out when one fails: see `failed_guest`.
            let run = Some(run).filter(|_| needs != Needs::UnusableKvm);
            run.into_iter().chain([first]).map(move |row| row.needs(needs))
        })
        .collect();
    rows.push(too_wide(host));
    rows
}

/// That memory reaches beyond this host's addresses, KVM says.
fn too_wide(host: &Host) -> Row {
    let bits = host.check["address_bits"].as_u64().unwrap_or(40);
    let arguments = format!("run --memory size={}", 1u64 << bits);
    let line = format!(
        "--memory size=…: must be between 64M and …, which is what {bits}-bit physical addresses have room for"
    );
    Row::new("more memory than this host's addresses reach", &arguments, USAGE, &line).needs(Needs::OpenKvm)
}

/// `flatboot check` of every such host, and of this one.
pub(crate) fn trials(host: &Arc<Host>) -> Vec<Trial> {
    let hosts = HOSTS.into_iter().map(|(name, needs, line)| {
        let name = format!("/dev/kvm: {name}: check");
        let ignored = host.skips(&name, needs);
        let host = Arc::clone(host);
        Trial::test(name, move || check(&host, needs, Some(line))).with_ignored_flag(ignored)
    });
    let this = Arc::clone(host);
    let guests: [(&str, Needs, Body); 4] = [
        ("a guest that KVM cannot go on with: KVM is to blame", Needs::UnusableKvm, failed_guest),
        ("a guest that KVM can go on with: KVM is not tried before", Needs::OpenKvm, untried),
        ("a guest that only resets can do so for ever", Needs::OpenKvm, resets),
        ("a guest that resets: its files have all of its lives", Needs::OpenKvm, lives),
    ];
    let guests = guests.map(|(name, needs, body)| {
        let (ignored, host) = (host.skips(name, needs), Arc::clone(host));
        Trial::test(name, move || body(&host)).with_ignored_flag(ignored)
    });
    hosts
        .chain(guests)
        .chain([Trial::test("check says the same as text and as JSON", move || check(&this, Needs::Nothing, None))])
        .collect()
}

/// `lock cmpxchg16b [rsi]`, which KVMs that are none cannot do, then a reset: `mov al, 0xfe; out 0x64, al; hlt`.
const EXCHANGE: &[u8] = &[0xf0, 0x48, 0x0f, 0xc7, 0x0e, 0xb0, 0xfe, 0xe6, 0x64, 0xf4];
/// `R` to the serial port, then a reset: `mov dx, 0x3f8; mov al, 'R'; out dx, al`, and as above.
pub(crate) const RESET: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xb0, 0xfe, 0xe6, 0x64, 0xf4];

/// A kernel that is nothing but `code`, in 64-bit mode.
pub(crate) fn program(code: &[u8]) -> Vec<u8> {
    images::vmlinux_of(code)
}

/// The host is looked at after the guest has failed, and named.
fn failed_guest(host: &Host) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let kernel = directory.path().join("kernel");
    fs::write(&kernel, program(EXCHANGE))?;
    let mut flatboot = host.command(Needs::UnusableKvm).ok_or("no such host")?;
    flatboot.env_remove("FLATBOOT_LOG").args(["run", "--log-file"]).arg(directory.path().join("log"));
    let output = flatboot.args(["-vv", "--serial", "off", "--kernel"]).arg(&kernel).output()?;
    let said = String::from_utf8(output.stderr)?;
    let last = said.lines().last().unwrap_or_default();
    assert!(
        matches(last, "flatboot: error: /dev/kvm: opens, but … use a host with full KVM or the emulated KVM host"),
        "{said}"
    );
    assert!(said.contains("KVM cannot go on with vCPU 0"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    // The guest's own, then the one that it is tried with.
    assert_eq!(vms_in(&directory.path().join("log"))?, ["main", "probe"]);
    Ok(())
}

/// Whether KVM can run guests is found out by the guest: there is no other VM before its own, and none behind it.
fn untried(_host: &Host) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let (kernel, log) = (directory.path().join("kernel"), directory.path().join("log"));
    fs::write(&kernel, program(RESET))?;
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.env_remove("FLATBOOT_LOG").args(["run", "-vv", "--serial", "off", "--memory", "size=64M"]);
    let output = flatboot.arg("--log-file").arg(&log).arg("--kernel").arg(&kernel).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(vms_in(&log)?, ["main"]);
    Ok(())
}

/// By a log with everything in it, the threads that have asked KVM for a VM.
fn vms_in(log: &Path) -> Result<Vec<String>, Failed> {
    let log = fs::read_to_string(log)?;
    let asked = log.lines().filter(|line| line.ends_with("KVM_CREATE_VM"));
    Ok(asked.filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect())
}

/// More resets than there may be open files, each of which leaves its mark in the console's file, and nothing else; then SIGTERM ends
/// it.
fn resets(_host: &Host) -> Result<(), Failed> {
    /// Until all is there that stays.
    const FIRST: usize = 5;
    let times = times(64)?;
    let directory = tempfile::tempdir()?;
    let (kernel, console) = (directory.path().join("kernel"), directory.path().join("console"));
    fs::write(&kernel, program(RESET))?;
    let script = format!(
        "ulimit -n 48; exec {FLATBOOT} run --restart-on-reset --kernel {} --serial file={}",
        kernel.display(),
        console.display()
    );
    // To a file: a pipe that nobody reads is full after two thousand lines.
    let messages = directory.path().join("messages");
    let mut flatboot = Command::new("sh");
    flatboot.args(["-c", &script]).stdin(Stdio::null()).stderr(fs::File::create(&messages)?);
    let mut flatboot = flatboot.spawn()?;
    let keeper = flatboot.id();
    let marks = || fs::read(&console).unwrap_or_default();
    // However long it takes, unless it ends.
    let mut until = |count: usize| -> Result<Option<Usage>, Failed> {
        while flatboot.try_wait()?.is_none() {
            if marks().len() >= count {
                return Ok(Some(Usage::of(keeper)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(None)
    };
    let before = until(FIRST)?;
    let resets = FIRST + usize::try_from(times)?;
    let mut after = until(resets)?;
    // What starts the next VM has a descriptor more for a moment.
    for _ in 0..50 {
        if after.as_ref().zip(before.as_ref()).is_none_or(|(after, before)| after.is_back_at(before)) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        after = until(resets)?;
    }
    let stopped = Command::new("kill").arg(keeper.to_string()).status()?;
    flatboot.wait()?;
    let (said, marks) = (fs::read_to_string(&messages)?, marks());
    let (Some(before), Some(after)) = (before, after) else {
        return Err(format!("{} resets, then: {said}", marks.len()).into());
    };
    tell("a VM's reset", times, &before, &after);
    assert!(after.is_back_at(&before), "more than {before:?}: {after:?}");
    assert!(stopped.success() && marks.iter().all(|mark| *mark == b'R') && !said.contains("error"), "{said}");
    Ok(())
}

/// Each life has a process of its own, and all have the same files; what was in them before is gone. None of them makes the
/// console larger than it may be.
fn lives(_host: &Host) -> Result<(), Failed> {
    const LIVES: usize = 3;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("events");
    fs::write(directory.path().join("kernel"), program(RESET))?;
    fs::write(&file, "somebody else's")?;
    fs::write(directory.path().join("console"), "somebody else's")?;
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args(["run", "--restart-on-reset", "--kernel", "kernel", "--rng", "off", "--memory", "size=64M"]);
    flatboot.args(["--serial", "file=console", "--serial-limit", "2", "--event-monitor", "events"]);
    let mut flatboot = flatboot.current_dir(directory.path()).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let starts = || fs::read_to_string(&file).map_or(0, |text| text.matches("\"starting\"").count());
    let began = Instant::now();
    while starts() <= LIVES && flatboot.try_wait()?.is_none() && began.elapsed() < LONG {
        thread::sleep(Duration::from_millis(20));
    }
    let stopped = Command::new("kill").arg(flatboot.id().to_string()).status()?;
    flatboot.wait()?;
    let text = fs::read_to_string(&file)?;
    let events = serde_json::Deserializer::from_str(&text).into_iter::<Value>().collect::<Result<Vec<_>, _>>()?;
    let names: Vec<_> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let life = ["starting", "booting", "booted", "shutdown", "shutdown"];
    let lives: Vec<_> = names.chunks(life.len()).take(LIVES).collect();
    assert!(stopped.success() && lives == [life; LIVES], "{names:?}");
    // Each life has written one, and the third one too many.
    assert_eq!(fs::read(directory.path().join("console"))?, b"RR");
    Ok(())
}

/// Both forms agree with each other, with the exit status, and with `line`.
fn check(host: &Host, needs: Needs, line: Option<&str>) -> Result<(), Failed> {
    let run =
        |arguments: &[&str]| host.command(needs).ok_or("no such host")?.args(arguments).output().map_err(Failed::from);
    let (text, json) = (run(&["check"])?, run(&["check", "--json"])?);
    let report: Value = serde_json::from_slice(&json.stdout)?;
    let usable = report["usable"].as_bool().ok_or("usable is no truth value")?;
    let status = Some(i32::from(!usable));
    assert_eq!((text.status.code(), json.status.code()), (status, status), "{report}");
    assert!(text.stderr.is_empty(), "{}", String::from_utf8_lossy(&text.stderr));

    let shown = String::from_utf8(text.stdout)?;
    let first = shown.lines().next().unwrap_or_default();
    if usable {
        assert_eq!((first, json.stderr.as_slice(), report.get("problem")), ("/dev/kvm: runs guests", &b""[..], None));
    } else {
        let problem = report["problem"].as_str().ok_or("no problem")?;
        assert_eq!((first, String::from_utf8(json.stderr)?), (problem, format!("{problem}\n")));
    }
    let limits = shown.lines().nth(1).unwrap_or_default();
    if let (Some(vcpus), Some(bits)) = (report["vcpus"].as_u64(), report["address_bits"].as_u64()) {
        assert_eq!(limits, format!("limits: {vcpus} vCPUs, {bits}-bit guest physical addresses"));
        assert!((1..=1024).contains(&vcpus) && (36..=52).contains(&bits), "{limits}");
    } else {
        assert_eq!(limits, "");
    }
    let facts = report["host"].as_array().ok_or("nothing is said of the host")?;
    let told = |fact: &Value, field: &str| fact[field].as_str().is_none_or(|value| shown.contains(value));
    assert!(facts.iter().all(|fact| told(fact, "name") && told(fact, "found")), "{shown}");
    assert!(facts.iter().all(|fact| told(fact, "costs")), "{shown}");
    let names: Vec<_> = facts.iter().filter_map(|fact| fact["name"].as_str()).collect();
    let last = ["file size", "open files", "threads of a user", "locked memory", "mappings of a process"];
    assert!(names.len() > 10 && names.ends_with(&last), "{names:?}");
    if let Some(line) = line {
        assert!(matches(first, line), "{first}");
    }
    Ok(())
}
