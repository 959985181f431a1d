// SPDX-License-Identifier: Apache-2.0
//! Guests end in defined ways, and flatboot's exit status says which.

use flatboot_bench::spec::{PROMISES, Proof, footprint};
use libtest_mimic::Failed;

use super::api::{prints, script};
use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("endings::power_off", |lab| ending(lab, "flatboot.end=poweroff", 0, "guest powered off")),
    ("endings::reset", |lab| ending(lab, "flatboot.end=reboot", 0, "guest asked for a reset")),
    ("endings::reset_by_keyboard_controller", |lab| ending(lab, "flatboot.end=reboot reboot=k", 0, "reset")),
    ("endings::panic", |lab| ending(lab, "flatboot.end=panic", 3, "panicked")),
    ("endings::panic_says_why", says_why),
    ("endings::init_exits", |lab| ending(lab, "flatboot.end=exit", 3, "panicked")),
    ("endings::no_init", no_init),
    ("endings::triple_fault", |lab| ending(lab, "flatboot.end=reboot reboot=t", 4, "triple fault")),
    ("endings::sigterm_powers_off_or_ends", sigterm),
    ("endings::sigterm_ends_a_vm_whose_device_hangs", hung_device),
    ("endings::a_vm_whose_disk_hangs_is_ended", hung_disk),
    ("endings::a_reboot_waits_for_the_disk", slow_disk),
    ("endings::a_second_signal_ends_what_hears_none", unheard),
    ("endings::restart_on_reset", restart),
    ("endings::killed_leaves_nothing", killed),
    ("endings::footprint_of_the_vmm", footprint),
];

fn ending(lab: &Lab, cmdline: &str, code: u8, words: &str) -> Result<(), Failed> {
    lab.ends(&lab.guest().cmdline(cmdline), code, words).map(drop)
}

/// The kernel tells pvpanic first, and then the console what it was asked to print of its memory.
fn says_why(lab: &Lab) -> Result<(), Failed> {
    let guest = lab.guest().cmdline("flatboot.end=panic panic_print=2");
    let ended = lab.ends(&guest, 3, "panicked")?;
    let console = String::from_utf8_lossy(&ended.outcome.stdout);
    require(console.contains("Mem-Info:"), || lab.describe(&guest, &ended).message().unwrap_or_default().to_owned())
}

/// Without a root file system the kernel panics before user space.
fn no_init(lab: &Lab) -> Result<(), Failed> {
    let mut guest = lab.guest();
    guest.initramfs = None;
    lab.ends(&guest, 3, "panicked").map(drop)
}

/// The words of a shell command that runs flatboot with a guest which hangs after its checks.
pub(crate) fn hanging(lab: &Lab, memory: &str, cpus: u8) -> String {
    format!(
        "{} run --kernel {} --initramfs {} --memory size={memory} --cpus boot={cpus} --serial file={} \
         --cmdline 'quiet flatboot.end=hang'",
        lab.flatboot.display(),
        lab.kernel.join("vmlinux").display(),
        lab.initramfs.display(),
        lab.path("console").display()
    )
}

/// A shell snippet that waits until the guest's init has done its checks.
pub(crate) fn wait_for_init(lab: &Lab) -> String {
    format!(
        "n=0; until grep -q '\"check\":\"done\"' {} 2>/dev/null; do n=$((n+1)); [ $n -lt 600 ] || exit 99; sleep 0.1; done",
        lab.path("console").display()
    )
}

/// The script's VM did not power off when it was asked to, and flatboot says that it ended it.
fn is_ended_by_grace_period(lab: &Lab, script: &str) -> Result<(), Failed> {
    let outcome = lab.shell(script)?;
    let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let said = stderr.lines().last().is_some_and(|line| line.contains("did not power off within 1 s"));
    require(outcome.code == 6 && said, || format!("exit code {}, stderr {stderr:?}", outcome.code))
}

/// The tiny init knows no power button, so the grace period ends it.
fn sigterm(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        "rm -f {console}; {run} --shutdown-timeout 1 & pid=$!; {wait}; kill -TERM $pid; wait $pid",
        console = lab.path("console").display(),
        run = hanging(lab, "256M", 1),
        wait = wait_for_init(lab)
    );
    is_ended_by_grace_period(lab, &script)
}

/// A source of random bytes that never gives any: the master of a terminal that nobody has opened. A VMM which waits for it where
/// it should notice the end never ends.
fn hung_device(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        "rm -f {console}; {run} --rng src=/dev/ptmx --shutdown-timeout 1 & pid=$!; {wait}; kill -TERM $pid; \
         n=0; while kill -0 $pid 2>/dev/null; do n=$((n+1)); [ $n -lt 100 ] || {{ kill -KILL $pid; exit 98; }}; sleep 0.1; done; \
         wait $pid",
        console = lab.path("console").display(),
        run = hanging(lab, "256M", 1),
        wait = wait_for_init(lab)
    );
    is_ended_by_grace_period(lab, &script)
}

/// The guest has powered off, and nobody reads the pipe that the timeline goes to, which is full. Whoever writes there hears no signal:
/// the second one ends it.
fn unheard(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        r#"set -e; cd "$(mktemp -d -p /run)"; mkfifo pipe; sleep 1000 <pipe & reader=$!; trap 'kill $reader' EXIT
dd if=/dev/zero of=pipe bs=64k count=1 status=none
{flatboot} run --kernel {kernel} --initramfs {initramfs} --serial file=console --timeline pipe --cmdline quiet & pid=$!
n=0; until grep -q 'Power down' console 2>/dev/null; do n=$((n+1)); [ $n -lt 600 ] || exit 99; sleep 0.1; done
sleep 1; kill -TERM $pid; sleep 1; kill -0 $pid; kill -TERM $pid
code=0; wait $pid || code=$?; echo "ended $code""#,
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
    );
    prints(lab, &script, "ended 143")
}

/// Words for these scripts: a VM writes to a disk on a file system, which is frozen then.
const FROZEN: &str = r#"
trap '{ fsfreeze -u frozen; kill -KILL $pid; umount -l frozen; } 2>/dev/null || :' EXIT
truncate -s 64M image; mkfs.ext4 -q image; mkdir frozen; mount -o loop image frozen; truncate -s 1M frozen/disk
put vm.delete; put vm.create "$(echo "$config" | sed 's,"path": "disk","path": "frozen/disk",')"
put vm.boot; until_it grep -q '"begun":true' console
written() { get vm.counters | sed 's/.*"_disk0":{[^}]*"write_bytes":\([0-9]*\).*/\1/'; }
moves() { [ "$(written)" -gt $before ]; }
before=$(written); until_it moves
fsfreeze -f frozen; sleep 1; before=$(written); sleep 1
if moves; then echo 'the disk does not hang' >&2; exit 98; fi
"#;

/// Its disk is on a file system that is frozen while the guest writes. A pause is refused, and the end is said, while it still hangs.
/// Only the kernel may then keep the process, as long as it has one of its requests; it lets go of the file a little later.
fn hung_disk(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{FROZEN}
if put vm.pause >refused 2>&1; then echo 'it is paused' >&2; exit 97; fi
grep -q 'a request has not completed within' refused; is Running
again() {{ kill -TERM $pid; sleep 0.5; grep -q 'a second signal came' events; }}
until_it again
fsfreeze -u frozen; code=0; wait $pid || code=$?
until_it umount frozen 2>/dev/null; echo "ended $code"
"#
    );
    let cmdline = "flatboot.check=pulse=/dev/vda flatboot.end=poweroff";
    prints(lab, &format!("PATH=$PATH:/usr/sbin:/sbin\n{}", script(lab, cmdline, &rest)), "ended 6")
}

/// The same disk, and a reboot: it waits until what the first VM has asked for is over. The disk is locked until then, and would
/// otherwise be refused.
fn slow_disk(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{FROZEN}
(sleep 3; fsfreeze -u frozen) & put vm.reboot; is Running
twice() {{ [ "$(grep -c '"begun":true' console)" -ge 2 ]; }}
until_it twice; put vmm.shutdown; wait $pid
until_it umount frozen 2>/dev/null; grep -c '"event": "rebooted"' events
"#
    );
    let cmdline = "flatboot.check=pulse=/dev/vda flatboot.end=poweroff";
    prints(lab, &format!("PATH=$PATH:/usr/sbin:/sbin\n{}", script(lab, cmdline, &rest)), "1")
}

/// The second VM sees that the first has been there by the console file's growth, and is then ended from outside.
fn restart(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        "cd {dir}; {flatboot} run --kernel {kernel} --initramfs {initramfs} --memory size=256M --restart-on-reset \
         --cmdline 'quiet flatboot.end=reboot' >restarts & pid=$!; \
         n=0; until [ $(grep -c '\"check\":\"done\"' restarts) -ge 3 ]; do n=$((n+1)); [ $n -lt 600 ] || break; sleep 0.1; done; \
         kill -KILL $pid; grep -c '\"check\":\"done\"' restarts",
        dir = lab.scratch.path().display(),
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
    );
    let outcome = lab.shell(&script)?;
    let count: u32 = outcome.stdout_text().trim().parse().unwrap_or(0);
    require(count >= 3, || format!("the guest came up {count} times: {:?}", String::from_utf8_lossy(&outcome.stderr)))
}

/// SIGKILL in mid-boot: no thread, no child, no file but the console that was asked for.
fn killed(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        "mkdir -p {dir}/empty; cd {dir}/empty; {run} & pid=$!; sleep 0.5; kill -KILL $pid; wait $pid; ls; ls /proc | grep -x $pid",
        dir = lab.scratch.path().display(),
        run = hanging(lab, "256M", 2),
    );
    let outcome = lab.shell(&script)?;
    require(outcome.stdout.is_empty(), || format!("left behind: {:?}", outcome.stdout_text()))
}

/// The promise of docs/SPECIFICATION.md, whose bound this is.
fn footprint(lab: &Lab) -> Result<(), Failed> {
    let bounds = PROMISES
        .iter()
        .filter_map(|promise| if let Proof::Footprint { kib } = promise.proof { Some(kib) } else { None });
    let most = bounds.min().ok_or("no promise of a footprint")?;
    let own =
        lab.with_session(|session| footprint::measure(session, &lab.flatboot, lab.guest(), &lab.path("footprint")))?;
    require(own <= most, || format!("{own} KiB resident outside of guest memory, at most {most} are allowed"))
}
