// SPDX-License-Identifier: Apache-2.0
//! VMs that are made, watched and ended through the control API, by curl, as anybody else would.

use std::env;
use std::time::Duration;

use flatboot_bench::clock_jumps::{self, Jump, Pause};
use flatboot_bench::guest;
use libtest_mimic::Failed;

use super::lab::{LIMIT, Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("api::a_vm_from_creation_to_deletion", whole_life),
    ("api::a_guest_that_powers_off_ends_the_server", power_off),
    ("api::a_guest_that_resets_comes_up_again", reset),
    ("api::a_signal_is_not_forgotten", signal),
    ("api::pauses_are_exact", pauses),
    ("api::a_disk_grows_under_its_guest", grows),
    ("api::run_serves_too", run),
    ("api::a_console_is_a_pseudo_terminal", console),
    ("api::a_console_is_a_socket", console_socket),
    ("api::a_console_is_a_file", console_file),
    ("api::a_console_is_the_terminal", console_terminal),
];

/// A shell's words for all that follows: `put` and `get` fail with what they are answered, `until` waits for a command.
/// Sockets are made where the host has a file system of its own.
pub(crate) const WORDS: &str = r#"
set -e
cd "$(mktemp -d -p /run)"
api() { curl --silent --show-error --fail-with-body --unix-socket socket -X "$@"; }
put() { api PUT "http://localhost/api/v1/$1" ${2:+-d "$2"} || { echo " of $1" >&2; return 1; }; }
get() { api GET "http://localhost/api/v1/$1"; }
until_it() { n=0; until "$@"; do n=$((n+1)); [ $n -lt 600 ] || { echo "waited for: $*" >&2; exit 99; }; sleep 0.1; done; }
is() { get vm.info | grep -q "\"state\":\"$1\""; }
inits() { [ "$(grep -c '"check":"done"' console 2>/dev/null)" -ge "$1" ]; }
answers() { get vmm.ping >/dev/null 2>&1; }
"#;

/// The script begins with a server whose VM is `cmdline`'s, created and not booted; `$config` is what from.
pub(crate) fn script(lab: &Lab, cmdline: &str, rest: &str) -> String {
    format!(
        r#"{WORDS}
truncate -s 1M disk
{flatboot} --api-socket path=socket --event-monitor path=events & pid=$!
until_it answers
config='{{"payload": {{"kernel": "{kernel}", "initramfs": "{initramfs}", "cmdline": "quiet {cmdline}"}},
    "cpus": {{"boot_vcpus": 2, "max_vcpus": 2}}, "memory": {{"size": 1073741824}}, "console": {{"mode": "Off"}},
    "serial": {{"mode": "File", "file": "console"}}, "disks": [{{"path": "disk"}}]}}'
put vm.create "$config"
{rest}"#,
        flatboot = lab.flatboot.display(),
        kernel = lab.kernel.join("vmlinux").display(),
        initramfs = lab.initramfs.display(),
    )
}

/// It ends well and prints `expected`.
pub(crate) fn prints(lab: &Lab, script: &str, expected: &str) -> Result<(), Failed> {
    let outcome = lab.shell(script)?;
    let (stdout, stderr) = (outcome.stdout_text(), String::from_utf8_lossy(&outcome.stderr).into_owned());
    require(outcome.code == 0 && stdout.trim() == expected, || {
        format!("exit code {}, standard output {stdout:?}, standard error {stderr:?}", outcome.code)
    })
}

fn whole_life(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
put vm.boot; is Running; until_it inits 1
put vm.pause; is Paused
before=$(stat -c %s console); sleep 0.5; [ "$before" = "$(stat -c %s console)" ]
get vm.counters | grep -q '"_disk0":{.*"read_bytes":'
put vm.resume; is Running
put vm.power-button
put vm.reboot; is Running; until_it inits 2
put vm.shutdown; is Shutdown
put vm.boot; until_it inits 1; put vm.delete
put vmm.shutdown; wait $pid
[ ! -e socket ]
grep -o '"event": "[a-z]*"' events | cut -d'"' -f4 | tr '\n' ' '
"#;
    let expected = "starting booting booted pausing paused resuming resumed rebooting shutdown booting booted rebooted \
                    shutdown booting booted shutdown deleted shutdown";
    prints(lab, &script(lab, "flatboot.end=hang", rest), expected)
}

fn power_off(lab: &Lab) -> Result<(), Failed> {
    let rest = "put vm.boot; wait $pid; [ ! -e socket ]; grep -c 'guest powered off' events";
    prints(lab, &script(lab, "flatboot.end=poweroff", rest), "1")
}

/// As often as it likes, until somebody ends it.
fn reset(lab: &Lab) -> Result<(), Failed> {
    let rest = "put vm.boot; until_it inits 3; put vm.delete; put vmm.shutdown; wait $pid; echo ended";
    prints(lab, &script(lab, "flatboot.end=reboot", rest), "ended")
}

/// The guest that was asked to power off goes, and nobody else would end the server.
fn signal(lab: &Lab) -> Result<(), Failed> {
    let rest =
        "put vm.boot; until_it inits 1; kill -TERM $pid; sleep 1; put vm.shutdown; wait $pid || true; echo ended";
    prints(lab, &script(lab, "flatboot.end=hang", rest), "ended")
}

/// A guest that counts and writes is paused again and again, a tenth of a second and more each time. It loses nothing, and
/// its clock jumps once for each pause: between the request to pause and its answer, and as long as it rested. If not, it is seen
/// once more: a processor that is held up at such a moment hides a jump, a clock that is wrong does so each time.
fn pauses(lab: &Lab) -> Result<(), Failed> {
    if let Err(missing) = paused(lab)? {
        eprintln!("AGAIN: {missing}");
        paused(lab)??;
    }
    Ok(())
}

/// All of that, but for a pause that the guest's clock has no jump for: which one.
fn paused(lab: &Lab) -> Result<Result<(), String>, Failed> {
    let times = env::var("FLATBOOT_TIMES").map_or(Ok(10), |text| text.parse::<u32>())?;
    let rest = format!(
        r#"
now() {{ date +%s%N; }}
put vm.boot; until_it grep -q '"begun":true' console
n=0; paused=
while [ $n -lt {times} ]; do
    n=$((n+1)); asked=$(now); put vm.pause; rests=$(now); sleep 0.1; resumed=$(now); put vm.resume
    paused="$paused $asked $rests $resumed $(now)"
done
printf stop | dd of=disk bs=4096 seek=255 conv=notrunc status=none; wait $pid; cat console; echo $paused
"#
    );
    let script = script(lab, "flatboot.check=pulse=/dev/vda,calm flatboot.end=poweroff", &rest);
    let outcome = lab.shell_for(&script, LIMIT + Duration::from_secs(5) * times)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    let reports = guest::reports(&said);
    let has_passed = |name: &str| reports.iter().any(|report| report["check"] == name && report["ok"] == true);
    require(outcome.code == 0 && has_passed("pulse") && has_passed("calm"), seen)?;
    let pulse = reports.iter().find(|report| report["jumps"].is_u64()).ok_or("no report of the clock")?;
    let each: Vec<[i64; 2]> = serde_json::from_value(pulse["each"].clone())?;
    let jumps: Vec<_> = each.into_iter().map(|[at, length]| Jump { at, length }).collect();
    let pauses = asked(said.lines().next_back().unwrap_or_default())?;
    require(pauses.len() == usize::try_from(times)?, seen)?;
    // Of what its clock jumps besides, as a busy host has it, no more than a tenth of the time.
    let jumped: i64 = jumps.iter().map(|jump| jump.length).sum();
    let in_all: i64 = pauses.iter().map(|pause| pause.runs - pause.asked).sum();
    require(jumped <= in_all + in_all / 10, seen)?;
    let missing = |pause: Pause| format!("{pause:?}: the guest's clock has no jump for it: {}", seen());
    Ok(clock_jumps::each_is_one(&pauses, &jumps).map_err(missing))
}

/// The pauses of which a line has the four times each.
fn asked(line: &str) -> Result<Vec<Pause>, Failed> {
    let times = line.split_whitespace().map(str::parse).collect::<Result<Vec<i64>, _>>()?;
    let pause = |four: &[i64; 4]| {
        let &[asked, rests, resumed, runs] = four;
        Pause { asked, rests, resumed, runs }
    };
    Ok(times.as_chunks().0.iter().map(pause).collect())
}

/// Both ways; what is written before anybody opens it holds up nobody. vm.info says where it is.
fn console(lab: &Lab) -> Result<(), Failed> {
    if !lab.kernel_has("CONFIG_VIRTIO_CONSOLE")? {
        return Err("the guest kernel has no VIRTIO_CONSOLE".into());
    }
    let rest = r#"
put vm.delete
put vm.create "$(echo "$config" | sed 's/"console": {"mode": "Off"}/"console": {"mode": "Pty"}/')"
put vm.boot; put vm.pause
pty=$(get vm.info | grep -o '"file":"/dev/pts/[0-9]*"' | cut -d'"' -f4); [ -c "$pty" ]
# Not by this shell itself, whose own terminal it would become.
(
    exec 3<>"$pty"
    put vm.resume
    while read -r line <&3; do
        case $line in
        *'"ready":true'*) echo typed >&3 ;;
        *'"line":"typed"'*) echo heard; break ;;
        esac
    done
    get vm.counters | grep -o '"_console":{"dropped_bytes":[0-9]*'
)
put vmm.shutdown; wait $pid
"#;
    let script = script(lab, "console=hvc0 flatboot.check=echo flatboot.end=hang", rest);
    prints(lab, &script, "heard\n\"_console\":{\"dropped_bytes\":0")
}

/// The guest sees it, and uses it.
fn grows(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
put vm.boot; until_it grep -q '"begun":true' console
put vm.resize-disk '{"id": "_disk0", "desired_size": 3145728}'
wait $pid; stat -c %s disk; cat console
"#;
    let outcome = lab.shell(&script(lab, "flatboot.check=grow=/dev/vda,calm flatboot.end=poweroff", rest))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    let reports = guest::reports(&said);
    let passed = reports.iter().any(|report| {
        report["check"] == "grow" && report["ok"] == true && report["before"] == 1 << 20 && report["after"] == 3 << 20
    });
    let calm = reports.iter().any(|report| report["check"] == "calm" && report["ok"] == true);
    require(outcome.code == 0 && passed && calm && said.starts_with("3145728\n"), seen)
}

/// The same at a socket, by a program that is not ours.
fn console_socket(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
put vm.delete
put vm.create "$(echo "$config" | sed 's/"console": {"mode": "Off"}/"console": {"mode": "Socket", "socket": "line"}/')"
put vm.boot; put vm.pause
cat >client.pl <<'END'
use IO::Socket::UNIX;
my $line = IO::Socket::UNIX->new(Peer => "line") or die "line: $!";
system("curl --silent --unix-socket socket -X PUT http://localhost/api/v1/vm.resume") == 0 or die "resume";
while (<$line>) {
    if (/"ready":true/) { print $line "typed\n"; $line->flush; }
    if (/"line":"typed"/) { print "heard\n"; last; }
}
END
perl client.pl
put vm.shutdown; [ ! -e line ]; put vmm.shutdown; wait $pid
"#;
    prints(lab, &script(lab, "console=hvc0 flatboot.check=echo flatboot.end=hang", rest), "heard")
}

/// The kernel's messages are there, too, once its driver is, without a word about them on its command line; and a guest that goes on
/// elsewhere goes on behind what it has said.
fn console_file(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"
put vm.delete
put vm.create "$(echo "$config" | sed 's/"serial": {{"mode": "File", "file": "console"}}/"serial": {{"mode": "Null"}}/
    s/"console": {{"mode": "Off"}}/"console": {{"mode": "File", "file": "console"}}/; s/quiet //')"
put vm.boot; until_it grep -q '"begun":true' console
put vm.pause; put vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}"; put vmm.shutdown; wait $pid
lines=$(wc -l <console)
(sleep 2; printf stop | dd of=disk bs=4096 seek=255 conv=notrunc status=none) &
{flatboot} run --restore snap
[ "$(grep -c 'Run /init as init process' console)" = 1 ]
sed "1,${{lines}}d" console | grep -q '"check":"done"'
echo both
"#,
        flatboot = lab.flatboot.display(),
    );
    prints(lab, &script(lab, "flatboot.check=pulse=/dev/vda flatboot.end=poweroff", &rest), "both")
}

/// Standard input and output, with and without a terminal that they are; Ctrl-A x ends the VM there.
fn console_terminal(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        r#"{WORDS}
cat >vm <<'END'
exec {} run --kernel {} --initramfs {} --memory size=512M --cpus boot=1 --rng off --serial null --console tty \
    --cmdline 'quiet flatboot.check=echo flatboot.end=hang'
END
mkfifo keys; exec 3<>keys
try() {{
    "$@" <keys >said 2>errors & pid=$!
    until_it grep -q '"ready":true' said; printf 'typed\n' >&3
    until_it grep -q '"line":"typed"' said
}}
try sh vm; kill -TERM $pid; sleep 0.5; kill -TERM $pid; wait $pid || :
# A terminal of its own, as its foreground process group.
try script --quiet --return --command 'sh vm' /dev/null
printf '\001x' >&3; wait $pid || :; grep -q 'Ctrl-A x was typed' said
echo heard twice
"#,
        lab.flatboot.display(),
        lab.kernel.join("vmlinux").display(),
        lab.initramfs.display(),
    );
    prints(lab, &script, "heard twice")
}

fn run(lab: &Lab) -> Result<(), Failed> {
    let script = format!(
        "{WORDS}\n{} run --api-socket socket --kernel {} --initramfs {} --memory size=512M --serial file=console \
         --cmdline 'quiet flatboot.end=hang' & pid=$!\n\
         until_it answers; until_it inits 1; is Running; put vm.pause; put vm.resume; put vmm.shutdown; wait $pid; \
         [ ! -e socket ]; echo ended",
        lab.flatboot.display(),
        lab.kernel.join("vmlinux").display(),
        lab.initramfs.display(),
    );
    prints(lab, &script, "ended")
}
