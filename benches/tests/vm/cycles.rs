// SPDX-License-Identifier: Apache-2.0
//! Snapshots again and again: a guest that is saved and goes on many times, and VMMs that are killed while they save or restore.

use std::env;
use std::time::Duration;

use flatboot_bench::guest;
use libtest_mimic::Failed;

use super::api::script;
use super::lab::{LIMIT, Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] =
    &[("cycles::nothing_differs", nothing_differs), ("cycles::killed_at_any_moment", killed)];

/// So many kills are not all on one side of what they interrupt.
const MANY: u32 = 50;

/// How often, unless `FLATBOOT_TIMES` says so.
fn times(seldom: u32) -> Result<u32, Failed> {
    Ok(env::var("FLATBOOT_TIMES").map_or(Ok(seldom), |times| times.parse())?)
}

/// Words for these scripts: a VM that is saved as `$1`, and up to so many milliseconds of sleep.
const WORDS: &str = r#"
save() { put vm.snapshot "{\"destination_url\": \"file://$PWD/$1\"}"; }
nap() { sleep "$(awk -v most=$1 -v seed="$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')" 'BEGIN { srand(seed); printf "%.3f", rand() * most / 1000 }')"; }
lost() { echo "$round: $1" >&2; ls -la . snap* >&2; tail -n 5 said >&2; exit 98; }
"#;

/// A guest that renews its memory and writes to its disk without end: saved at any moment, killed, and restored by another VMM, by
/// turns from the command line and through a server, each from what the one before has saved.
fn nothing_differs(lab: &Lab) -> Result<(), Failed> {
    let times = times(3)?;
    let rest = format!(
        r#"{WORDS}
put vm.delete; put vm.create "$(echo "$config" | sed 's/"size": 1073741824/"size": 134217728/')"
put vm.boot; until_it grep -q '"begun":true' console
round=0
while [ $round -lt {times} ]; do
    round=$((round+1)); nap 300
    put vm.pause; save snap$round; kill -9 $pid; ! wait $pid; rm -r socket snap$((round-1)) 2>/dev/null || :
    case $((round % 2)) in
    0) {flatboot} run --restore snap$round --api-socket path=socket 2>said & pid=$!; until_it answers ;;
    1) {flatboot} --api-socket path=socket 2>said & pid=$!; until_it answers
       put vm.restore "{{\"source_url\": \"file://$PWD/snap$round\", \"resume\": true}}" ;;
    esac
    until_it is Running
done
sleep 1; printf stop | dd of=disk bs=4096 seek=255 conv=notrunc status=none; wait $pid
[ "$(ls -A | tr '\n' ' ')" = "console disk events said snap$round " ] || lost 'something is left'
cat console
"#,
        flatboot = lab.flatboot.display(),
    );
    let cmdline = "memmap_init=ondemand flatboot.check=pulse=/dev/vda,calm flatboot.end=poweroff";
    let limit = LIMIT + Duration::from_secs(20) * times;
    let outcome = lab.shell_for(&script(lab, cmdline, &rest), limit)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    let reports = guest::reports(&said);
    let passed = |name: &str| reports.iter().find(|report| report["check"] == name && report["ok"] == true);
    require(outcome.code == 0 && passed("calm").is_some(), seen)?;
    let pulse = passed("pulse").ok_or_else(seen)?;
    println!("{times} cycles: {} blocks written, {} pages, nothing differs", pulse["writes"], pulse["pages"]);
    Ok(())
}

/// By turns: while a VM is saved that rests, when there is a snapshot as good as the one that the VM came from, or none, and nothing
/// that the next one does not remove; and while it is restored, when the snapshot stays as it was.
fn killed(lab: &Lab) -> Result<(), Failed> {
    let times = times(6)?;
    let rest = format!(
        r#"{WORDS}
put vm.delete; put vm.create "$(echo "$config" | sed 's/"size": 1073741824/"size": 134217728/')"
put vm.boot; until_it inits 1; put vm.pause; save base; put vmm.shutdown; wait $pid
now() {{ echo $(($(date +%s%N) / 1000000)); }}
sums() {{ stat -c '%Y %s %i' base base/*; cksum base/state; }}
# All but the last page, which has the number of the snapshot, and the 12 bytes of kvm-clock's time of boot: KVM writes them when it
# is told where they are.
# Of a file that is shorter cmp says nothing more, and what is not there differs nowhere.
same() {{
    [ $(stat -c %s $1/memory) = $(stat -c %s base/memory) ] || return 1
    differs=0; cmp -l -n 134217728 base/memory $1/memory >differences || differs=$?
    [ $differs -le 1 ] || return 1
    awk 'NR == 1 {{ from = $1 }} $1 >= from + 12 {{ print; exit 1 }}' differences >&2 || return 1
    rm differences
}}
restore() {{ {flatboot} run --restore base,resume=off --api-socket path=socket --serial null 2>said & pid=$!; }}
dies() {{ kill -9 $pid; ! wait $pid 2>/dev/null; rm -f socket; }}
start=$(now); restore; until_it answers; restored=$(($(now) - start))
start=$(now); save snap; saved=$(($(now) - start)); same snap || lost 'a snapshot of what did not run differs'
rm -r snap; dies; before=$(sums); whole=0 none=0 round=0
while [ $round -lt {times} ]; do
    round=$((round+1)); restore; until_it answers
    (save snap >/dev/null 2>&1 || :) & asks=$!
    nap $saved; dies; wait $asks
    if [ -e snap ]; then
        whole=$((whole+1)); [ "$(ls -A snap | tr '\n' ' ')" = 'memory state ' ] && same snap || lost 'a snapshot is not whole'
        [ ! -e .snap.partial ] || lost 'something is left beside it'
        {flatboot} run --restore snap,resume=off --api-socket path=socket --serial null 2>said & pid=$!
        until_it answers; is Paused; dies
    else
        none=$((none+1)); restore; until_it answers; save snap; same snap || lost 'the next snapshot differs'
        [ ! -e .snap.partial ] || lost 'something is left'
        dies
    fi
    rm -r snap
    restore; nap $restored; dies; [ "$before" = "$(sums)" ] || lost 'the snapshot has changed'
    [ "$(ls -A | tr '\n' ' ')" = 'base console disk events said ' ] || lost 'something is left'
done
restore; until_it answers; put vm.resume; put vm.pause; save snap; put vmm.shutdown; wait $pid
echo "$whole $none, within $saved ms of a snapshot and $restored ms of a restore"
"#,
        flatboot = lab.flatboot.display(),
    );
    let limit = LIMIT + Duration::from_secs(30) * times;
    let outcome = lab.shell_for(&script(lab, "memmap_init=ondemand flatboot.end=hang", &rest), limit)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    println!("{times} kills of a snapshot and of a restore: whole and none {}", said.trim());
    let counts: Vec<u32> = said.split([' ', ',']).map_while(|word| word.parse().ok()).collect();
    // So many at random moments hit both: what never does shows nothing.
    require(
        matches!(counts[..], [whole, none] if whole + none == times && (times < MANY || (whole > 0 && none > 0))),
        seen,
    )?;
    Ok(())
}
