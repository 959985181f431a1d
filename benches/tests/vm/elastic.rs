// SPDX-License-Identifier: Apache-2.0
//! Memory that a guest gets and gives back while it runs, and a template of one size that goes on in another.

use std::time::Duration;

use flatboot_bench::guest;
use flatboot_bench::modes::MODES;
use flatboot_handoff::SECTION_SIZE;
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use super::api::script;
use super::lab::{LIMIT, Lab, require};
use super::timed::{columns, ratio, took};

/// The driver of the memory device.
const DRIVER: &str = "CONFIG_MEMMAP_HELD";

/// With this, all struct pages are set up at boot, and none can be added later.
const ALL: &str = "CONFIG_KASAN";

/// A test of how long something takes, and with what it takes longer.
const TIMED: &str = "elastic::any_difference_takes_as_long_and_no_memory";
const LOOKS: &str = "CONFIG_DEBUG_VM";

/// Tests of what most kernels of a VM lack, and what that is.
const SAVED: &str = "elastic::memory_that_is_being_saved_stays_as_large";
const POISONED: &str = "elastic::memory_that_is_faulty_goes";
const NEEDED: [(&str, &str); 2] = [(SAVED, "CONFIG_HIBERNATION_SNAPSHOT_DEV"), (POISONED, "CONFIG_MEMORY_FAILURE")];

pub(crate) fn trials() -> [Trial; 9] {
    [
        ("elastic::memory_comes_is_used_and_goes", changes as fn(&Lab) -> Result<(), Failed>),
        ("elastic::held_memory_costs_nothing", held),
        ("elastic::memory_comes_to_a_guest_that_is_short_of_it", short),
        ("elastic::full_memory_goes", laden),
        ("elastic::memory_that_is_pinned_stays_and_the_rest_goes", pinned),
        ("elastic::a_template_goes_on_in_another_size", template),
        (TIMED, constant),
        (SAVED, saved),
        (POISONED, poisoned),
    ]
    .map(|(name, body)| {
        Trial::ignorable_test(name, move || {
            let lab = Lab::get()?;
            Ok(match cannot(lab, name)? {
                Some(why) => Completion::ignored_with(format!("the guest kernel has {why}")),
                None => body(lab).map(|()| Completion::Completed)?,
            })
        })
    })
}

/// What the guest kernel has, or has not, that keeps this test from being run.
fn cannot(lab: &Lab, name: &str) -> Result<Option<String>, Failed> {
    Ok(if !lab.kernel_has(DRIVER)? {
        Some(format!("no {DRIVER}"))
    } else if lab.kernel_has(ALL)? {
        Some(format!("{ALL}, and thus no held memory"))
    } else if name == TIMED && lab.kernel_has(LOOKS)? {
        Some(format!("{LOOKS}, which looks at each struct page"))
    } else if let Some((_, option)) = NEEDED.iter().find(|(test, _)| *test == name)
        && !lab.kernel_has(option)?
    {
        Some(format!("no {option}: make vm KERNEL=cloud runs it"))
    } else {
        None
    })
}

/// Words for these scripts: a VM of 1 GiB that can have 5 GiB (a third word is its `memory.thp`), how often a check has been
/// reported, a size in MiB, flatboot's memory in KiB and whether it stays so, a word in the disk's last block, and a longer wait.
const ELASTIC: &str = r#"
vm() { put vm.delete; put vm.create "$(echo "$config" | sed "s/\"size\": 1073741824/\"size\": $(($1 << 20)), \"max\": $(($2 << 20))${3:+, \"thp\": $3}/")"; }
vm 1024 5120
seen() { [ "$(grep -c "\"check\":\"$2\"" "$1")" -ge "$3" ]; }
size() {
    curl --silent --show-error --unix-socket socket -X PUT http://localhost/api/v1/vm.resize -d "{\"desired_ram\": $(($1 << 20))}" >&2
    get vm.info | grep -q "\"memory_actual_size\":$(($1 << 20))[,}]"
}
rss() { awk '/^VmRSS/ { print $2 }' /proc/$pid/status; }
at_rest() { before=$(rss); sleep 0.5; [ "$(rss)" = "$before" ]; }
used() { awk '/^MemTotal/ { total = $2 } /^MemAvailable/ { print total - $2 }' /proc/meminfo; }
tell() { printf "$1" | dd of=disk bs=4096 seek=255 conv=notrunc status=none; }
said() { n=0; until grep -q "\"$1\":true" console; do n=$((n+1)); [ $n -lt 1500 ] || { echo "waited for $1" >&2; exit 99; }; sleep 0.2; done; }
"#;

/// Runs `rest`, which prints what the guest has said, with `words` on its command line: all its checks have passed, which are
/// `checks`. What they have reported.
fn passes(lab: &Lab, words: &str, checks: &[&str], rest: &str) -> Result<Vec<Value>, Failed> {
    passes_and_says(lab, words, checks, rest).map(|(reports, _)| reports)
}

/// The same, and all that was printed.
fn passes_and_says(lab: &Lab, words: &str, checks: &[&str], rest: &str) -> Result<(Vec<Value>, String), Failed> {
    let cmdline =
        format!("debugfs=on memmap_held=movable {words} flatboot.check={} flatboot.end=poweroff", checks.join(","));
    let outcome = lab.shell_for(&script(lab, &cmdline, &format!("{ELASTIC}{rest}")), Duration::from_secs(480))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let reports = guest::reports(&said);
    let expected: Vec<_> = checks.iter().map(|check| check.split('=').next().unwrap_or(check)).collect();
    let passed: Vec<_> = reports.iter().filter(|report| report["ok"] == true).collect();
    let passed: Vec<_> = passed.iter().filter_map(|report| report["check"].as_str()).collect();
    require(expected.iter().all(|check| times(&passed, check) == times(&expected, check)), seen)?;
    Ok((reports, said))
}

fn times(of: &[&str], check: &str) -> usize {
    of.iter().filter(|other| **other == check).count()
}

/// What was filled is emptied, and the host has its memory again. Right behind what the guest owns then, where its kernel may read a
/// few bytes, there are zeros, and so there are where it has owned more.
fn changes(lab: &Lab) -> Result<(), Failed> {
    let sizes = ["total=0M", "total=512M", "hog=90%", "total=0M", "total=3072M", "hog=50%", "total=128M"];
    let checks = [&sizes[..], &["zeros=0x148000000", "zeros=0x1c0000000", "calm"]].concat();
    let rest = r#"
put vm.boot; until_it seen console total 1
size 1536; until_it seen console hog 1
full=$(rss); size 1024; until_it seen console total 3; after=$(rss)
[ $((full - after)) -gt $((256 << 10)) ] || { echo "$full KiB were $after KiB" >&2; exit 98; }
size 4096; until_it seen console hog 2
# With that the guest ends, and may do so before vm.info can be asked.
put vm.resize "{\"desired_ram\": $((1152 << 20))}" || :
wait $pid; cat console
"#;
    passes(lab, "", &checks, rest).map(drop)
}

/// What 1000 GiB of held memory may cost a VM of 1 GiB, of its host's memory and of its own `MemTotal`: 8000 sections of 128 MiB have
/// to be known.
const HELD_KIB: u64 = 1 << 10;

/// The same VM without and with held memory that it does not get, by turns; the least of three counts. Without huge pages, of which
/// the host gives one or two more or less for a page that a boot happens to touch.
fn held(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
for max in 1024 1025024 1024 1025024 1024 1025024; do
    vm 1024 $max false
    put vm.boot; until_it seen console total 1; until_it at_rest; echo "took $(rss)"
    # It is there.
    [ $max = 1024 ] || size 1152
    put vm.shutdown; cat console
done
put vmm.shutdown; wait $pid
"#;
    let cmdline = "memmap_init=ondemand flatboot.check=total=0M flatboot.end=hang";
    let outcome = lab.shell(&script(lab, cmdline, &format!("{ELASTIC}{rest}")))?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let took: Vec<u64> = said.lines().filter_map(|line| line.strip_prefix("took ")?.parse().ok()).collect();
    let reports = guest::reports(&said);
    let totals: Vec<u64> = reports.iter().filter_map(|report| report["base_kib"].as_u64()).collect();
    require(took.len() == 6 && totals.len() == 6, seen)?;
    let least = |of: &[u64], first: usize| of.iter().skip(first).step_by(2).min().copied().unwrap_or(0);
    let (host, host_held) = (least(&took, 0), least(&took, 1));
    let (total, total_held) = (least(&totals, 0), least(&totals, 1));
    println!(
        "1000 GiB held: the host gives {host_held} KiB and {host} without; MemTotal is {total_held} and {total} KiB"
    );
    let own = total_held <= total && total <= total_held + HELD_KIB;
    require(host_held <= host + HELD_KIB && own, seen)
}

/// No page may take longer to come, in an emulated host that has little of its machine.
const STALL: Duration = Duration::from_secs(5);

/// In every mode: a guest that has nothing left grows, goes on page by page, and then takes all that it has. Nothing is killed.
fn short(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
vm 1024 5120 '"all"'; put vm.boot; said short
size 2048
wait $pid; cat console
"#;
    for mode in MODES.iter().filter(|mode| !mode.is_stock()) {
        let reports = passes(lab, &mode.cmdline(None), &["handoff", "short=768M", "hog=90%", "calm"], rest)?;
        let report = |name| reports.iter().find(|report| report["check"] == name).ok_or_else(|| format!("no {name}"));
        let nodes = report("handoff")?["files"]["memmap_nodes"].to_string();
        require(nodes.contains(&format!(" {} ", mode.name)), || format!("{}: the kernel shows {nodes}", mode.name))?;
        let short = report("short")?;
        let longest = |name: &str| short[name].as_u64().map(Duration::from_nanos).ok_or_else(|| format!("{short}"));
        let (before, after) = (longest("longest_short_ns")?, longest("longest_after_ns")?);
        println!("{}: the longest that a page took to come: {before:?} until memory came, {after:?} then", mode.name);
        require(before.max(after) <= STALL, || format!("{}: {short}", mode.name))?;
    }
    Ok(())
}

/// A quarter of a full guest's memory goes while all of it is read: its own pages, a file in memory, and one on a disk.
fn laden(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
truncate -s 1G disk; PATH=$PATH:/usr/sbin:/sbin mke2fs -q -t ext4 disk; vm 512 1024
put vm.boot; until_it seen console total 1
size 1024; said laden
full=$(rss); size 768; after=$(rss)
[ $((full - after)) -gt $((240 << 10)) ] || { echo "$full KiB were $after KiB" >&2; exit 98; }
wait $pid; cat console
"#;
    let reports = passes(lab, "", &["total=0M", "total=512M", "laden=/dev/vda", "calm"], rest)?;
    let full = reports.iter().find(|report| report["laden"] == true).ok_or("nothing was filled")?;
    let kib = |name: &str| full[name].as_u64().unwrap_or(0);
    require(kib("free_kib") < kib("total_kib") / 8, || format!("it was not full: {full}"))
}

/// What a section of held memory adds to `MemTotal`, in KiB: the first of its pages are its memmap.
const SECTION_KIB: u64 = 126 << 10;

/// Held pages lie below 2 GiB: what is above goes. Of the rest, so much is told to be there as there is; and it goes once it can.
fn pinned(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
vm 1024 4096; put vm.boot; until_it seen console total 1
size 2048; said pinned; size 4096
! why=$(put vm.resize "{\"desired_ram\": $((1 << 30))}" 2>&1)
part=$(echo "$why" | sed -n 's/.*the guest could not do all of it: it has \([0-9]*\) bytes of memory now.*/\1/p')
[ "$part" -gt $((1 << 30)) ] && [ "$part" -le $((2 << 30)) ] || { echo "$why" >&2; cat console >&2; exit 98; }
get vm.info | grep -q "\"memory_actual_size\":$part[,}]"
tell go; said released; size 1024; tell stop
wait $pid; cat console; echo "part $part"
"#;
    let checks = ["total=0M", "total=1024M", "pinned=/dev/vda", "calm"];
    let (reports, said) = passes_and_says(lab, "", &checks, rest)?;
    let part: u64 = said.lines().find_map(|line| line.strip_prefix("part ")?.parse().ok()).ok_or("no part")?;
    let kib = |check: &str, name: &str| reports.iter().find(|report| report["check"] == check)?[name].as_u64();
    let base = kib("total", "base_kib").ok_or("no base")?;
    let expected = base + (part - (1 << 30)) / SECTION_SIZE * SECTION_KIB;
    let is = [kib("pinned", "part_kib"), kib("pinned", "after_kib")];
    require(is == [Some(expected), Some(base)], || format!("of {part} and {} bytes, {is:?} KiB: {said}", 1 << 30))
}

/// A guest that is about to save its memory takes none, says so, and takes it afterwards. One that has some does not save its memory:
/// whoever resumes would not know of it.
fn saved(lab: &Lab) -> Result<(), Failed> {
    let rest = r#"
vm 1024 4096; put vm.boot; said saving
! why=$(put vm.resize "{\"desired_ram\": $((2 << 30))}" 2>&1)
case $why in *"it has $((1 << 30)) bytes of memory now"*) ;; *) echo "$why" >&2; cat console >&2; exit 98 ;; esac
tell go; said saved; size 2048; tell more; said refused; size 1024; tell stop
wait $pid; cat console
"#;
    passes(lab, "", &["saved=/dev/vda", "calm"], rest).map(drop)
}

/// A page that the guest has taken out of use does not keep its section, and is not counted any more once that has gone.
fn poisoned(lab: &Lab) -> Result<(), Failed> {
    let rest = r"
vm 1024 4096; put vm.boot; until_it seen console total 1
size 2048; said poisoned; size 1024; tell stop
wait $pid; cat console
";
    passes(lab, "", &["total=0M", "total=1024M", "poisoned=/dev/vda", "calm"], rest).map(drop)
}

fn template(lab: &Lab) -> Result<(), Failed> {
    let checks = ["total=0M", "total=3072M", "hog=50%", "calm"];
    let rest = format!(
        r#"
put vm.boot; until_it seen console total 1
put vm.pause; put vm.snapshot "{{\"destination_url\": \"file://$PWD/snap\"}}"; put vmm.shutdown; wait $pid
{flatboot} run --restore snap --memory size=4G --serial file=after & pid=$!
wait $pid; cat console after
! {flatboot} run --restore snap --memory size=6G --serial null 2>error
grep -q 'memory.size=6G: must be 1G to 5G' error && [ "$(wc -l <error)" = 1 ]
"#,
        flatboot = lab.flatboot.display(),
    );
    passes(lab, "", &checks, &rest).map(drop)
}

/// For each of the rounds, in an emulated host that has little of its machine.
const ROUND: Duration = Duration::from_secs(10);

/// Each of these sizes in MiB, one after the other, in each round.
const SIZES: [u64; 4] = [2048, 1024, 262_144, 1024];

/// Rounds, and what the ratio may be. The promises `grow` and `shrink` are held to less, by more: here only what grows with memory shows.
const ROUNDS: usize = 7;
const MOST: f64 = 3.0;
/// What the host may give for a guest's growth: to flatboot and its guest, or as a whole, with what its kernel needs for them.
const MOST_KIB: u64 = 16 << 10;

/// From the request until the guest has done it, by the VMM's events: 255 GiB in the time of 1 GiB, there and back; and what the host
/// gives for 255 GiB, once the guest is at rest.
fn constant(lab: &Lab) -> Result<(), Failed> {
    let rest = format!(
        r#"{ELASTIC}
vm 1024 262144
put vm.boot; until_it seen console total 1; until_it at_rest
for round in $(seq {count}); do for mib in {sizes}; do size $mib; done; done
until_it at_rest; less=$(rss); first=$(used); size 262144; until_it at_rest; echo "$less $(rss) $first $(used)"
put vmm.shutdown; wait $pid; cat events
"#,
        count = ROUNDS + 1,
        sizes = SIZES.map(|mib| mib.to_string()).join(" "),
    );
    let cmdline = "memmap_init=ondemand flatboot.check=total=0M flatboot.end=hang";
    let limit = LIMIT + ROUND * u32::try_from(ROUNDS)?;
    let outcome = lab.shell_for(&script(lab, cmdline, &rest), limit)?;
    let said = outcome.stdout_text();
    let seen = || format!("exit code {}: {said}: {}", outcome.code, String::from_utf8_lossy(&outcome.stderr));
    require(outcome.code == 0, seen)?;
    let (memory, events) = said.split_once('\n').ok_or_else(seen)?;
    let mut took = took(events, ("resizing", "resized")).ok_or_else(seen)?;
    // The last is only for what the host gives.
    took.pop();
    let [less, back, more, far_back] = columns(&took, ROUNDS).ok_or_else(seen)?;
    let (larger, smaller) = (ratio(&more, &less), ratio(&far_back, &back));
    println!("255 GiB against 1 GiB: {larger:.3} more, {smaller:.3} less: {took:?}; memory in KiB: {memory}");
    require(larger <= MOST && smaller <= MOST, || format!("{larger:.3} and {smaller:.3}, at most {MOST}: {took:?}"))?;
    let kib: Vec<u64> = memory.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let &[before, after, first, last] = &kib[..] else { return Err(seen().into()) };
    // A host that is not ours alone uses memory for others, too.
    let whole = !lab.is_emulated() || last <= first + MOST_KIB;
    require(after <= before + MOST_KIB && whole, || format!("more than {MOST_KIB} KiB: {memory}"))
}
