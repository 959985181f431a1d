// SPDX-License-Identifier: Apache-2.0
//! VMs that go on from one template: how soon, in which size, how many at once, and who they are.

use std::collections::BTreeSet;
use std::time::Duration;

use flatboot_bench::{Command, HostOptions, artifact, guest};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use super::lab::{LIMIT, Lab, in_memory, require};
use super::timed::{columns, ratio, rounds};

/// What the guest kernel must have for each of the tests.
const TRIALS: [(&str, &str, Body); 3] = [
    ("clone::starts_in_no_time_and_in_any_size", "CONFIG_MEMMAP_HELD", in_no_time),
    ("clone::fifty_of_one_are_fifty", "CONFIG_VIRTIO_NET", fifty),
    ("clone::two_of_debian_have_machine_ids_of_their_own", "CONFIG_VIRTIO_BLK", machine_ids),
];

type Body = fn(&Lab) -> Result<(), Failed>;

pub(crate) fn trials() -> [Trial; 3] {
    TRIALS.map(|(name, needed, body)| {
        Trial::ignorable_test(name, move || {
            let lab = Lab::get()?;
            if !lab.kernel_has(needed)? {
                return Ok(Completion::ignored_with(format!("the guest kernel has no {needed}")));
            }
            body(lab).map(|()| Completion::Completed)
        })
    })
}

/// Words for these scripts: a VM of `options` whose guest waits until it is another one, and its snapshot.
fn words(lab: &Lab, options: &str) -> String {
    format!(
        r#"
put() {{ curl --silent --show-error --fail-with-body --unix-socket $1 -X PUT "http://localhost/api/v1/$2" ${{3:+-d "$3"}}; }}
until_it() {{ i=0; until "$@" >/dev/null 2>&1; do i=$((i+1)); [ $i -lt 600 ] && kill -0 $! || {{ echo "waited for: $*" >&2; exit 99; }}; sleep 0.1; done; }}
boot() {{
    '{flatboot}' run --kernel '{kernel}' --initramfs '{initramfs}' --cpus boot=1 {options} "$@" \
        --cmdline 'quiet memmap_init=ondemand flatboot.check=clone,calm flatboot.end=hang' & pids="$pids $!"
}}
boot --serial file=console --api-socket socket
until_it grep -q '"waits":true' console; sleep 2
put socket vm.pause; put socket vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}"; put socket vmm.shutdown; wait $!
"#,
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
    )
}

/// For each of the rounds, in an emulated host.
const ROUND: Duration = Duration::from_secs(40);

/// From exec: until init by a boot; until the first instruction of a guest that goes on in the size that it had, and in others; and
/// until it has those.
fn in_no_time(lab: &Lab) -> Result<(), Failed> {
    let (times, bound) = rounds(1.1)?;
    let script = format!(
        r#"{words}
ended() {{ kill -TERM $!; sleep 0.3; kill -TERM $!; wait $! || :; }}
for round in $(seq {count}); do
    rm console; boot --serial file=console --timeline boot
    until_it grep -q '"waits":true' console; ended; cat boot
    for size in 512M 1G 256G 1000G; do
        rm -f events
        '{flatboot}' run --restore snap --memory size=$size --serial null --timeline restored --event-monitor path=events & pids="$pids $!"
        sleep 0.3; case $size in 512M) event=resumed ;; *) event=resized ;; esac
        until_it grep -q "\"$event\"" events; ended; cat restored events
    done
done
"#,
        words = words(lab, "--memory size=512M,max=1000G"),
        flatboot = lab.flatboot.display(),
        count = times + 1,
    );
    let limit = LIMIT + ROUND * u32::try_from(times)?;
    let outcome = lab.shell_for(&in_memory("kill -KILL $pids", &script), limit)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let moments = moments(&said).ok_or_else(seen)?;
    let [boot, same, _, little, other, much, most, all] = columns(&moments, times).ok_or_else(seen)?;
    let (to_init, in_size, until_sized) = (ratio(&same, &boot), ratio(&other, &same), ratio(&much, &little));
    println!(
        "first instruction: {to_init:.3} of a boot to init, in 256 GiB {in_size:.3} times as in 512 MiB; until it has 256 GiB \
         {until_sized:.3} times as 1 GiB, {:.3} times as the first instruction in 512 MiB; with 1000 GiB {:.3} and {:.3} times: \
         {moments:?} ns",
        ratio(&much, &same),
        ratio(&most, &same),
        ratio(&all, &little)
    );
    // Of the first ratio few samples say enough.
    require(to_init <= 0.1 && in_size <= bound && until_sized <= bound, || {
        format!("{to_init:.3}, {in_size:.3} and {until_sized:.3}: must be at most 0.1, {bound} and {bound}: {}", seen())
    })
}

/// Nanoseconds since exec, of each timeline until its guest is there, and until each guest has its size.
fn moments(said: &str) -> Option<Vec<u64>> {
    let mut moments = Vec::new();
    for document in serde_json::Deserializer::from_str(said).into_iter::<Value>() {
        let document = document.ok()?;
        if let Some(marks) = document["marks"].as_array() {
            let at = |name: &str| marks.iter().find(|mark| mark["name"] == name)?["ns"].as_u64();
            moments.push(at("init-exec").or_else(|| at("first KVM_RUN"))?);
        } else if document["event"] == "resized" {
            let time = &document["timestamp"];
            moments.push(time["secs"].as_u64()? * 1_000_000_000 + time["nanos"].as_u64()?);
        }
    }
    Some(moments)
}

const CLONES: usize = 50;
/// Most memory of the host that each of them may have.
const KIB: u64 = 8 << 10;

/// At once, each with an interface and a console of its own. What they take of the host is looked at before they go on, and when all
/// have said who they are.
fn fifty(lab: &Lab) -> Result<(), Failed> {
    let may = "[ $(id -u) = 0 ] && [ -c /dev/net/tun ]";
    require(lab.shell(may)?.code == 0, || "taps are made by root, with /dev/net/tun".to_owned())?;
    let script = format!(
        r#"# A server sets up no interface.
tap() {{ ip tuntap add flatboot-c$1 mode tap; ip link set flatboot-c$1 up; taps="$taps flatboot-c$1"; }}
tap 0
{words}
available() {{ awk '/^MemAvailable/ {{ print $2 }}' /proc/meminfo; }}
pss() {{ awk '/^Pss:/ {{ printf "%d ", $2 }}' $(printf '/proc/%d/smaps_rollup ' $clones); }}
clones=
up() {{ curl --silent --unix-socket socket$1 http://localhost/api/v1/vm.info; }}
start() {{
    tap $1
    '{flatboot}' run --restore snap,resume=off --net tap=flatboot-c$1,mac=52:54:00:00:00:$(printf %02x $1),vhost=off \
        --serial file=said$1 --api-socket socket$1 & clones="$clones $!"; pids=$clones
}}
start 1; until_it up 1; first=$(available)
for n in $(seq 2 {CLONES}); do start $n; done
for n in $(seq 2 {CLONES}); do until_it up $n; done
echo "rest $(pss)"; echo "each $(((first - $(available)) / {others}))"
for n in $(seq {CLONES}); do put socket$n vm.resume; done
for n in $(seq {CLONES}); do until_it grep -q '"check":"calm"' said$n; done
echo "ran $(pss)"; echo "each $(((first - $(available)) / {others}))"
for n in $(seq {CLONES}); do put socket$n vmm.shutdown; done; wait
cat said*
"#,
        words = words(lab, "--memory size=1G --net tap=flatboot-c0,mac=52:54:00:00:00:00,vhost=off"),
        flatboot = lab.flatboot.display(),
        others = CLONES - 1,
    );
    let end = "kill -KILL $pids; for tap in $taps; do ip link delete $tap; done";
    let outcome = lab.shell_for(&in_memory(end, &script), Duration::from_secs(900))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;

    let reports = guest::reports(&said);
    let passed = |check: &str| reports.iter().filter(|report| report["check"] == check && report["ok"] == true).count();
    require(passed("clone") == CLONES && passed("calm") == CLONES, seen)?;
    for field in ["id", "random", "mac"] {
        let all: BTreeSet<_> = reports.iter().filter_map(|report| report[field].as_str()).collect();
        require(all.len() == CLONES, || format!("{field}: {} of {CLONES} differ: {}", all.len(), seen()))?;
    }
    let resident = |when: &str| -> Option<Vec<u64>> {
        let line = said.lines().find_map(|line| line.strip_prefix(when))?;
        line.split_whitespace().map(|kib| kib.parse().ok()).collect()
    };
    let (rest, ran) = (resident("rest ").ok_or_else(seen)?, resident("ran ").ok_or_else(seen)?);
    require(rest.len() == CLONES && ran.len() == CLONES, seen)?;
    let most = |of: &[u64]| of.iter().skip(1).max().copied().unwrap_or(u64::MAX);
    let taken: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("each ")).collect();
    println!(
        "{CLONES} clones: at most {} KiB each at rest, {} KiB when they have run; the host has {taken:?} KiB less for each",
        most(&rest),
        most(&ran)
    );
    require(most(&rest) <= KIB, || format!("{rest:?} KiB: must be {KIB} KiB at most"))?;
    // What the host's kernel has for each is in that; a host that is not ours alone uses memory for others, too.
    let each = taken.first().and_then(|kib| kib.parse::<u64>().ok()).ok_or_else(seen)?;
    require(!lab.is_emulated() || each <= KIB, || format!("{each} KiB of the host: must be {KIB} KiB at most"))
}

/// Somebody logs in, in each of two that went on at once from a template at its login prompt, and does what docs/snapshots.md says.
fn machine_ids(lab: &Lab) -> Result<(), Failed> {
    let (disk, initramfs) = artifact::debian_disk()?;
    let script = format!(
        r#"
put() {{ curl --silent --show-error --fail-with-body --unix-socket socket -X PUT "http://localhost/api/v1/$1" ${{2:+-d "$2"}}; }}
seen() {{ i=0; until grep -qs "$2" $1; do i=$((i+1)); [ $i -lt 1200 ] || {{ echo "waited for $2" >&2; tail -n 30 $1 >&2; exit 99; }}; sleep 0.1; done; }}
cp --sparse=always '{disk}' disk0
'{flatboot}' run --kernel '{kernel}' {initramfs} --memory size=1G --disk path=disk0 --serial file=console \
    --cmdline 'root=/dev/vda rw rootfstype=ext4 quiet loglevel=3 memmap_init=ondemand' --api-socket path=socket & pids=$!
seen console 'login: '; sleep 2
put vm.pause; put vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}"; put vmm.shutdown; wait $!
for n in 1 2; do
    cp --sparse=always disk0 disk$n; mkfifo keys$n; exec {{keys[n]}}<>keys$n
    '{flatboot}' run --restore snap --disk path=disk$n --serial tty <&${{keys[n]}} >said$n & pids="$pids $!"
done
for n in 1 2; do
    echo root >&${{keys[n]}}; seen said$n '# $'
    echo 'echo "was $(cat /etc/machine-id)"; {command}; echo "is $(cat /etc/machine-id)"; poweroff' >&${{keys[n]}}
done
wait; cat said1 said2
"#,
        flatboot = lab.flatboot.display(),
        kernel = artifact::debian_kernel()?.display(),
        initramfs = initramfs.map(|path| format!("--initramfs '{}'", path.display())).unwrap_or_default(),
        disk = disk.display(),
        command = documented("Machine ID")?,
    );
    let command = Command::new("/bin/bash").args(["-c", &in_memory("kill -KILL $pids", &script)]);
    let outcome = lab.on_host(
        HostOptions { drives: vec![disk], ..HostOptions::default() },
        &command.timeout(Duration::from_secs(600)),
    )?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let words: Vec<_> = said.split_whitespace().collect();
    let ids = |when: &str| -> Vec<&str> {
        let pairs = words.iter().zip(words.iter().skip(1)).filter(|(before, _)| **before == when);
        let ids = pairs.map(|(_, id)| *id);
        ids.filter(|id| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit())).collect()
    };
    let (were, are) = (ids("was"), ids("is"));
    let same = matches!(were[..], [one, other] if one == other);
    require(
        same && matches!(are[..], [one, other] if one != other && !were.contains(&one) && !were.contains(&other)),
        seen,
    )
}

/// The command that docs/snapshots.md has for what should differ in each clone.
fn documented(what: &str) -> Result<&'static str, Failed> {
    let row = format!("| {what} | `");
    let line = include_str!("../../../docs/snapshots.md").lines().find_map(|line| line.strip_prefix(row.as_str()));
    Ok(line
        .and_then(|line| line.split('`').next())
        .ok_or_else(|| format!("docs/snapshots.md: no command for {what}"))?)
}
