// SPDX-License-Identifier: Apache-2.0
//! Workloads ([`flatboot_bench::work`]), in the userland of a disk: a program is run, and a rate read off what it prints.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use flatboot_bench::work::{
    DATA_DISK, DATA_MIB, DISK_MIB, ECHO_PORT, LINKS, RATE, READ_TIMES, ROOT_DISK, SECONDS, Task, Workload,
};
use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};

use crate::memory::{self, PAGE};
use crate::net::PATIENCE;
use crate::outcome::Outcome;
use crate::{files, fill, readers, rtnetlink, waits};

/// Where the userland's disk is mounted before it becomes the root directory.
const ROOT: &str = "/root";

/// What is done once, before the first.
static READY: OnceLock<Result<(), String>> = OnceLock::new();

/// The workload called `name`.
pub(crate) fn work(name: &str) -> Outcome {
    let workload = Workload::named(name).ok_or_else(|| format!("work={name}: no such workload"))?;
    READY.get_or_init(get_ready).clone()?;
    let rate = match workload.task {
        Task::Stream { link, streams, from_host } => stream(link.host, streams, from_host),
        Task::Echo(link) => echo((link.host, ECHO_PORT).into()),
        Task::Disk { pattern, block, depth, flush } => disk((pattern, block), depth, flush),
        Task::Touch(percent) => {
            per_second(&fill::take(&format!("{percent}%"))?, "pages").map(|pages| pages * PAGE as u64)
        }
        Task::Turns(times) => per_second(&waits::turns(&times.to_string())?, "turns"),
        Task::Programs(times) => per_second(&waits::programs(&times.to_string())?, "programs"),
        Task::Readers(readers) => read(readers),
        Task::Stress(stressor) => stress(stressor),
    }?;
    Ok((rate > 0, json!({ "name": name, RATE: rate })))
}

/// From here on the root directory is the userland's.
fn get_ready() -> Result<(), String> {
    let root = format!("/dev/{}", disk_named(ROOT_DISK)?);
    let put = |source: &str, target: &str, kind: &str, flags| {
        mount(source, format!("{ROOT}{target}"), kind, flags, None)
            .map_err(|error| format!("{source} on {ROOT}{target}: {error}"))
    };
    put(&root, "", "ext4", MountFlags::RDONLY)?;
    for (kind, target) in
        [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp"), ("tmpfs", "/run")]
    {
        put(kind, target, kind, MountFlags::empty())?;
    }
    let entered = rustix::process::chroot(ROOT).and_then(|()| rustix::process::chdir("/"));
    entered.map_err(|error| format!("{ROOT}: {error}"))?;
    for link in LINKS {
        let index = interface(link.mac)?;
        rtnetlink::address(index, link.guest)?;
        rtnetlink::up(index)?;
    }
    Ok(())
}

/// The disk with that serial number. The order in which a VMM has them is its own.
fn disk_named(serial: &str) -> Result<String, String> {
    let is = |disk: &String| files::text(format!("/sys/block/{disk}/serial")).is_ok_and(|is| is.trim() == serial);
    files::names("/sys/block").into_iter().find(is).ok_or_else(|| format!("no disk with the serial number {serial}"))
}

fn interface(mac: &str) -> Result<u32, String> {
    let is = |name: &String| files::text(format!("/sys/class/net/{name}/address")).is_ok_and(|is| is.trim() == mac);
    let name = files::names("/sys/class/net").into_iter().find(is).ok_or_else(|| format!("no interface with {mac}"))?;
    let index = files::number(format!("/sys/class/net/{name}/ifindex"))?;
    u32::try_from(index).map_err(|error| error.to_string())
}

fn stream(host: Ipv4Addr, streams: u8, from_host: bool) -> Result<u64, String> {
    let words = format!("--json --client {host} --time {SECONDS} --omit 1 --parallel {streams}");
    let reverse = from_host.then_some("--reverse");
    let said = json_of("/usr/bin/iperf3", words.split(' ').chain(reverse))?;
    // Bits.
    number(&said, "/end/sum_received/bits_per_second").map(|bits| bits / 8)
}

fn disk((pattern, block): (&str, &str), depth: u8, flush: u8) -> Result<u64, String> {
    let device = disk_named(DATA_DISK)?;
    let words = format!(
        "--name=work --output-format=json --thread --direct=1 --ioengine=libaio --filename=/dev/{device} --size={DATA_MIB}m \
         --rw={pattern} --bs={block} --iodepth={depth} --fdatasync={flush} --time_based --runtime={SECONDS} --ramp_time=1 --randseed=1"
    );
    let said = json_of("/usr/bin/fio", words.split(' '))?;
    let way = if pattern.ends_with("read") { "read" } else { "write" };
    let what = if pattern.starts_with("rand") { "iops" } else { "bw_bytes" };
    number(&said, &format!("/jobs/0/{way}/{what}"))
}

/// Of a check that passed: how much of `what` it reports was done in a second of its `ns`.
fn per_second((passed, report): &(bool, Value), what: &str) -> Result<u64, String> {
    let [done, ns] = [what, "ns"].map(|name| report[name].as_u64().unwrap_or(0));
    let rate = u128::from(done) * 1_000_000_000 / u128::from(ns.max(1));
    if *passed { u64::try_from(rate).map_err(|error| error.to_string()) } else { Err(report.to_string()) }
}

fn read(readers: u8) -> Result<u64, String> {
    let total = memory::kib("MemTotal")?;
    if total * READ_TIMES > DISK_MIB << 10 {
        return Err(format!(
            "{} MiB of memory: readers are for VMs of at most {} MiB",
            total >> 10,
            DISK_MIB / READ_TIMES
        ));
    }
    let disk = format!("/dev/{}", disk_named(DATA_DISK)?);
    per_second(&readers::read_by(readers.into(), &disk, READ_TIMES * (total << 10))?, "bytes")
}

/// What stress-ng calls operations, a second.
fn stress(stressor: &str) -> Result<u64, String> {
    const SAID: &str = "/tmp/stress-ng.yaml";
    let words = format!("{stressor} --timeout {SECONDS} --quiet --metrics-brief --temp-path /tmp --yaml {SAID}");
    run("/usr/bin/stress-ng", words.split(' '))?;
    of_stress(&files::text(SAID)?)
}

/// stress-ng writes a line of it for each stressor, and only one was run.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, far below 2^52")]
fn of_stress(yaml: &str) -> Result<u64, String> {
    const RATE: &str = "bogo-ops-per-second-real-time:";
    let rate = yaml.lines().find_map(|line| line.trim().strip_prefix(RATE)?.trim().parse::<f64>().ok());
    rate.filter(|rate| *rate >= 0.0).map(|rate| rate as u64).ok_or_else(|| format!("stress-ng says no {RATE} {yaml}"))
}

/// Answers a second.
fn echo(peer: SocketAddr) -> Result<u64, String> {
    let begin = Instant::now();
    let ask = || -> std::io::Result<u64> {
        let mut stream = TcpStream::connect_timeout(&peer, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (mut byte, mut answers) = ([7], 0);
        while begin.elapsed() < Duration::from_secs(SECONDS) {
            stream.write_all(&byte)?;
            stream.read_exact(&mut byte)?;
            answers += 1;
        }
        Ok(answers)
    };
    let answers: u64 = ask().map_err(|error| format!("{peer}: {error}"))?;
    let micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(answers.saturating_mul(1_000_000) / micros.max(1))
}

/// Runs a program of the userland, which prints JSON.
fn json_of<'a>(program: &str, words: impl Iterator<Item = &'a str>) -> Result<Value, String> {
    let said = run(program, words)?;
    serde_json::from_slice(&said)
        .map_err(|error| format!("{program}: {error}: {}", head(&String::from_utf8_lossy(&said))))
}

/// Runs a program of the userland, and has what it prints.
fn run<'a>(program: &str, words: impl Iterator<Item = &'a str>) -> Result<Vec<u8>, String> {
    let output = Command::new(program).args(words).env("HOME", "/tmp").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        // iperf3 says in its JSON what is wrong.
        let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let told = head(&format!("{} {}", complaint.trim(), said.trim()));
        return Err(format!("{program}: {}: {told}", output.status));
    }
    Ok(output.stdout)
}

fn head(text: &str) -> String {
    text.chars().take(600).collect()
}

/// A number of that JSON, rounded down.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, far below 2^52")]
fn number(said: &Value, at: &str) -> Result<u64, String> {
    let found = said.pointer(at).and_then(Value::as_f64).filter(|rate| *rate >= 0.0);
    found.map(|rate| rate as u64).ok_or_else(|| format!("no number at {at}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_done_is_told_by_the_second() {
        let report = json!({ "pages": 3000, "ns": 1_500_000_000u64 });
        assert_eq!(per_second(&(true, report.clone()), "pages"), Ok(2000));
        assert!(per_second(&(false, report), "pages").is_err());
    }

    #[test]
    fn a_stressor_has_its_rate_in_a_line() {
        let yaml = "metrics:\n    - stressor: fork\n      bogo-ops: 1242\n      bogo-ops-per-second-usr-sys-time: \
                    530.9\n      bogo-ops-per-second-real-time: 413.9\n";
        assert_eq!(of_stress(yaml), Ok(413));
        assert!(of_stress("metrics:\n").is_err());
    }

    #[test]
    fn rates_are_found_in_what_programs_say() {
        let said = json!({ "jobs": [{ "read": { "iops": 812.9, "bw_bytes": 3 } }], "bad": -1 });
        assert_eq!(number(&said, "/jobs/0/read/iops"), Ok(812));
        assert_eq!(number(&said, "/jobs/0/read/bw_bytes"), Ok(3));
        assert!(number(&said, "/jobs/0/write/iops").is_err() && number(&said, "/bad").is_err());
    }
}
