// SPDX-License-Identifier: Apache-2.0
//! How large a snapshot is, and how long it takes: what Debian has touched at its login prompt decides, and not its memory's size.

use std::fs;
use std::time::Duration;

use flatboot_bench::{Command, HostOptions, artifact};
use libtest_mimic::Failed;

use super::lab::{Lab, in_memory, require};
use super::timed::{columns, ratio, rounds, took};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[("snapshot_size::of_debian_at_its_login_prompt", at_login)];

/// Of VMs that differ in this, each with a disk of its own.
const SIZES: [&str; 2] = ["1G", "256G"];

/// For each of the rounds, in an emulated host.
const ROUND: Duration = Duration::from_secs(20);

/// Both rest while they are saved in turn.
fn at_login(lab: &Lab) -> Result<(), Failed> {
    let (times, bound) = rounds(1.1)?;
    let (disk, initramfs) = artifact::debian_disk()?;
    // The same image under another name: writes to drives are dropped.
    let second = lab.path("second-disk");
    if !second.exists() {
        fs::hard_link(&disk, &second).or_else(|_| fs::copy(&disk, &second).map(drop))?;
    }
    let [small, large] = SIZES;
    let script = format!(
        r#"
start() {{
    mkdir $1
    '{flatboot}' run --kernel '{kernel}' {initramfs} --memory size=$1 --disk "path=$2" --serial file=$1/console \
        --cmdline 'root=/dev/vda rw rootfstype=ext4 quiet loglevel=3 memmap_init=ondemand' \
        --api-socket path=$1/socket --event-monitor path=$1/events & pids="$pids $!"; echo $! >$1/pid
}}
put() {{ curl --silent --show-error --fail-with-body --unix-socket $1/socket -X PUT "http://localhost/api/v1/$2" ${{3:+-d "$3"}}; }}
start {small} '{disk}'; start {large} '{second}'
n=0; for size in {small} {large}; do
    until grep -q 'login: ' $size/console; do n=$((n+1)); [ $n -lt 6000 ] || exit 99; sleep 0.1; done
done
sleep 1; put {small} vm.pause; put {large} vm.pause
for round in $(seq {count}); do for size in {small} {large}; do
    put $size vm.snapshot "{{\"destination_url\": \"file://$PWD/$size/snap\"}}"
    # What guest memory has of this host: flatboot keeps it out of core dumps, and nothing else of that size.
    touched=$(awk '/^Rss:/ {{ rss = $2 }} /^VmFlags:.* dd/ {{ sum += rss }} END {{ print sum }}' /proc/$(cat $size/pid)/smaps)
    echo "$size: touched $touched KiB, saved $(du -sk $size/snap | cut -f1) KiB" >&2
    rm -r $size/snap
done; done
put {small} vmm.shutdown; put {large} vmm.shutdown; wait; cat {small}/events {large}/events
"#,
        flatboot = lab.flatboot.display(),
        kernel = artifact::debian_kernel()?.display(),
        initramfs = initramfs.map(|path| format!("--initramfs '{}'", path.display())).unwrap_or_default(),
        disk = disk.display(),
        second = second.display(),
        count = times + 1,
    );
    let limit = Duration::from_secs(900) + ROUND * u32::try_from(times)?;
    let command = Command::new("/bin/bash").args(["-ec", &in_memory("kill $pids", &script)]).timeout(limit);
    let outcome = lab.on_host(HostOptions { drives: vec![disk, second], ..HostOptions::default() }, &command)?;
    let (events, said) = (outcome.stdout_text(), String::from_utf8_lossy(&outcome.stderr).into_owned());
    let seen = || format!("exit code {}: {said}: {events}", outcome.code);
    require(outcome.code == 0, seen)?;

    let sizes: Vec<_> = said.lines().filter_map(touched_and_saved).collect();
    require(sizes.len() == (times + 1) * SIZES.len(), seen)?;
    for (touched, saved) in &sizes {
        require(*saved * 10 <= *touched * 11 && *saved * 2 >= *touched, || {
            format!("{saved} KiB were saved of {touched} KiB: must be 1.1 times as much at most: {said}")
        })?;
    }
    let took = took(&events, ("snapshotting", "snapshotted")).ok_or_else(seen)?;
    // First all of the one, then all of the other.
    let (short, long) = took.split_at(times + 1);
    let pairs: Vec<_> = short.iter().zip(long).flat_map(|(short, long)| [*short, *long]).collect();
    let [short, long] = columns(&pairs, times).ok_or_else(seen)?;
    let more = ratio(&saved(&sizes, 1), &saved(&sizes, 0));
    let longer = ratio(&long, &short);
    println!(
        "{small} and {large}: {:?} KiB touched and saved; {more:.3} times as much, {longer:.3} times as long: {pairs:?} ns",
        &sizes[..2]
    );
    require(longer <= bound, || {
        format!("{longer:.3} times as long, for {more:.3} times as much: at most {bound}: {pairs:?} ns: {said}")
    })
}

/// KiB that were saved of one of the VMs, each time.
fn saved(sizes: &[(u64, u64)], of: usize) -> Vec<u64> {
    sizes.iter().skip(of).step_by(SIZES.len()).map(|(_, saved)| *saved).collect()
}

/// Of a line of the script.
fn touched_and_saved(line: &str) -> Option<(u64, u64)> {
    let (touched, saved) = line.split_once(": touched ")?.1.split_once(" KiB, saved ")?;
    Some((touched.parse().ok()?, saved.strip_suffix(" KiB")?.parse().ok()?))
}
