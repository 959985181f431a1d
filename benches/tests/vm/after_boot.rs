// SPDX-License-Identifier: Apache-2.0
//! What follows a boot: memory that is used up faster than it is reclaimed, processors that wait, programs that come and go.

use std::env;
use std::path::Path;
use std::time::Duration;

use flatboot_bench::guest::Guest;
use flatboot_bench::{artifact, stats};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("after_boot::kswapd_has_helpers", helped),
    ("after_boot::page_tables_are_borrowed_and_left", borrowed),
    ("after_boot::kmalloc_is_measured", measured),
];

/// On the host. Of holes, so that it takes nothing to read it.
const DISK: &str = "/dev/shm/flatboot-readers";
/// The disk is so many times as large as the guest's memory.
const TIMES: u64 = 4;
/// Between two marks lies as much of the memory as on a machine of a thousand times its size.
const MARKS: &str = "set=watermark_scale_factor:100";

/// How many read at once.
const RUNGS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// Values of `vm.kswapd_threads`: 0 is the default.
const THREADS: [u64; 3] = [1, 4, 0];
/// One thread is not enough where readers free so much of what is freed.
const SATURATED: f64 = 0.1;
/// Where it is not, four have so many of the direct reclaims, and reading takes so much of the time.
const STALLS: f64 = 0.5;
const TIME: f64 = 1.0;
/// By default reading takes nowhere more.
const TIME_BY_DEFAULT: f64 = 1.0 / 0.97;

/// Pages that are set up at a time, a block: the zone's lock is taken at most once for each. Where blocks went through the zone's lists
/// it was four times for base pages, and twice for huge ones.
const BLOCK: u64 = 1024;

/// What programs that come and go interrupt other processors for, of what they do on stock 6.12. Chance has its part in it.
const INTERRUPTS: f64 = 1.03;

pub(crate) fn trials() -> [Trial; 3] {
    [
        (
            "after_boot::kswapd_keeps_up_with_readers",
            ladder as fn(&Lab, usize) -> Result<(), Failed>,
            "three minutes each",
        ),
        ("after_boot::new_memory_needs_no_zone_lock", unlocked, "two minutes each, on a kernel of their own"),
        ("after_boot::a_programs_end_interrupts_nobody_more", exits, "minutes each"),
    ]
    .map(|(name, body, each)| {
        Trial::ignorable_test(name, move || {
            let Ok(rounds) = env::var("FLATBOOT_TIMES") else {
                return Ok(Completion::ignored_with(format!("FLATBOOT_TIMES says how many rounds, of {each}")));
            };
            body(Lab::get()?, rounds.parse()?).map(|()| Completion::Completed)
        })
    })
}

/// What readers say, one after another, of a guest of so many MiB that reads a disk of [`TIMES`] as many.
fn read(lab: &Lab, mib: u64, settings: &[(u64, u64)]) -> Result<Vec<Value>, Failed> {
    let readings: Vec<_> = settings
        .iter()
        .map(|(readers, threads)| format!("set=kswapd_threads:{threads},readers={readers}@/dev/vda"))
        .collect();
    let made = lab.shell(&format!("truncate -s {}M {DISK}", mib * TIMES))?;
    require(made.code == 0, || String::from_utf8_lossy(&made.stderr).into_owned())?;
    let checks = format!("{MARKS},{},calm", readings.join(","));
    let mut guest: Guest = lab.guest().memory(&format!("size={mib}M,thp=all")).checks(&checks);
    guest.limit = Duration::from_secs(1200);
    let ended = lab.passes(&guest.options(["--disk".to_owned(), format!("path={DISK},readonly=on")]));
    lab.shell(&format!("rm {DISK}"))?;
    let reports: Vec<_> = ended?.reports.into_iter().filter(|report| report["check"] == "readers").collect();
    require(reports.len() == settings.len(), || format!("{} reports of {}", reports.len(), settings.len()))?;
    require(reports.iter().all(|report| number(report, "bytes") >= (mib * TIMES) << 20), || format!("{reports:?}"))?;
    Ok(reports)
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or(0)
}

/// One thread has no helpers, four have, and so may one that has as many as are of use. The first two are read twice, as a
/// processor that is held up can turn one pair round.
fn helped(lab: &Lab) -> Result<(), Failed> {
    let reports = read(lab, 128, &[(16, 1), (16, 4), (16, 1), (16, 4), (16, 0)])?;
    let mut stalls = [0; 2];
    for [one, four] in reports.as_chunks::<2>().0 {
        require(number(one, "helped") == 0 && number(one, "freed_by_kswapd") > 0, || format!("one thread: {one}"))?;
        require(number(four, "helped") > 0, || format!("four threads: {four}"))?;
        stalls = [stalls[0] + number(one, "stalls"), stalls[1] + number(four, "stalls")];
    }
    require(stalls[1] < stalls[0], || format!("direct reclaims: {stalls:?}"))
}

/// Each rung by each number of threads by turns, in guests of their own for each round. Each round begins with another number, as
/// a reading finds what the one before it has left.
fn ladder(lab: &Lab, rounds: usize) -> Result<(), Failed> {
    let settings: Vec<_> = RUNGS.iter().flat_map(|rung| THREADS.map(|threads| (*rung, threads))).collect();
    let in_turn = |round: usize| -> Result<Vec<Value>, Failed> {
        let mut order = settings.clone();
        order.chunks_mut(THREADS.len()).for_each(|rung| rung.rotate_left(round % THREADS.len()));
        let mut reports = read(lab, 256, &order)?;
        reports.chunks_mut(THREADS.len()).for_each(|rung| rung.rotate_right(round % THREADS.len()));
        Ok(reports)
    };
    // The first warms up.
    let rounds: Vec<_> = (0..=rounds).map(in_turn).collect::<Result<_, _>>()?;
    let mut missed = Vec::new();
    let mut saturated = 0;
    for (rung, readers) in RUNGS.iter().enumerate() {
        let of = |threads: usize, name: &str| -> Vec<u64> {
            rounds[1..].iter().map(|round| number(&round[rung * THREADS.len() + threads], name)).collect()
        };
        let ratio = |name: &str, above: usize| stats::ratio_by_round(&of(above, name), &of(0, name));
        let sum = |name: &str| of(0, name).iter().sum::<u64>();
        let by_readers = share(sum("freed_by_readers"), sum("freed_by_kswapd"));
        let [stalls, time, by_default] = [ratio("stalls", 1), ratio("ns", 1), ratio("ns", 2)];
        println!(
            "{readers} readers: {:.0} % freed by themselves; four threads: {stalls:.2?} of the direct reclaims, {time:.3?} of the time; \
             by default {by_default:.3?} of the time",
            100.0 * by_readers
        );
        let holds = |ratio: Option<f64>, bound: f64| ratio.is_some_and(|ratio| ratio <= bound);
        if by_readers >= SATURATED {
            saturated += 1;
            if !holds(stalls, STALLS) || !holds(time, TIME) {
                missed.push(format!("{readers} readers, four threads"));
            }
        }
        if !holds(by_default, TIME_BY_DEFAULT) {
            missed.push(format!("{readers} readers, by default"));
        }
    }
    for round in &rounds {
        println!("{}", Value::from(round.clone()));
    }
    require(saturated > 0, || "one thread is enough everywhere: this shows nothing".to_owned())?;
    require(missed.is_empty(), || missed.join("; "))
}

#[expect(clippy::cast_precision_loss, reason = "pages, far below 2^52")]
fn share(one: u64, other: u64) -> f64 {
    one as f64 / (one + other).max(1) as f64
}

/// 4 GiB are booted and taken at once, as base pages and as huge ones, while memory is deferred.
fn unlocked(lab: &Lab, rounds: usize) -> Result<(), Failed> {
    let kernel = artifact::kernel("lockstat")?.join("vmlinux");
    let locked = |thp: &str| -> Result<(u64, u64), Failed> {
        let checks = format!("meminfo,{thp}take=90%,calm");
        let mut guest = lab.guest().memory("size=4G").cmdline("memmap_init=ondemand transparent_hugepage=madvise");
        guest.kernel.clone_from(&kernel);
        guest.limit = Duration::from_secs(900);
        let ended = lab.passes(&guest.checks(&checks))?;
        let (before, taken) = (ended.report("meminfo").ok_or("no report")?, ended.report("take").ok_or("no report")?);
        require(number(before, "deferred_kib") > 3 << 20, || format!("not deferred: {before}"))?;
        let locked = taken["zone_locked"].as_u64().ok_or("the kernel does not count its locks")?;
        Ok((locked, number(taken, "pages") / BLOCK))
    };
    for (pages, thp) in [("base", ""), ("huge", "thp,")] {
        let seen: Vec<_> = (0..rounds).map(|_| locked(thp)).collect::<Result<_, _>>()?;
        println!("{pages} pages: how often the zone's lock was taken, and blocks: {seen:?}");
        require(seen.iter().all(|(locked, blocks)| locked <= blocks), || format!("{pages} pages"))?;
    }
    Ok(())
}

/// 200 programs on each of 2 processors and 50 on each of 16, on the kernel and on stock 6.12 by turns.
fn exits(lab: &Lab, rounds: usize) -> Result<(), Failed> {
    let stock = artifact::kernel("stock")?.join("vmlinux");
    let calls = |(cpus, each): (u16, u64), kernel: &Path| -> Result<u64, Failed> {
        let mut guest = lab.guest().cpus(cpus).checks(&format!("programs=20,programs={each},calm"));
        kernel.clone_into(&mut guest.kernel);
        guest.limit = Duration::from_secs(600);
        let reports = lab.passes(&guest)?.reports;
        let last = reports.iter().rfind(|report| report["check"] == "programs").ok_or("no report")?;
        Ok(number(last, "calls"))
    };
    let mut missed = Vec::new();
    for of @ (cpus, _) in [(2, 200), (16, 50)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(calls(of, &lab.guest().kernel)?);
            theirs.push(calls(of, &stock)?);
        }
        let ratio = stats::ratio_by_round(&ours, &theirs);
        println!("{cpus} processors: {ratio:.3?} of the interrupts: {ours:?}, {theirs:?}");
        if ratio.is_none_or(|ratio| ratio > INTERRUPTS) {
            missed.push(format!("{cpus} processors"));
        }
    }
    require(missed.is_empty(), || missed.join(", "))
}

/// Twelve sizes, each of which takes time.
fn measured(lab: &Lab) -> Result<(), Failed> {
    let ended = lab.passes(&lab.guest().cmdline("debugfs=on").checks("kmalloc,calm"))?;
    let report = ended.report("kmalloc").ok_or("no report")?;
    let sizes = report["sizes"].as_array().ok_or("no sizes")?;
    let takes_time = |of: &Value| ["alloc", "free", "pair"].iter().all(|name| number(of, name) > 0);
    require(sizes.len() == 12 && sizes.iter().all(takes_time), || format!("{report}"))
}

/// Programs and threads that wait, on 16 processors, on a kernel that borrows page tables without counting.
fn borrowed(lab: &Lab) -> Result<(), Failed> {
    require(lab.kernel_has("CONFIG_MMU_LAZY_TLB_SHOOTDOWN")?, || "the kernel counts who borrows".to_owned())?;
    lab.passes(&lab.guest().cpus(16).checks("programs=20,waits=500,programs=20,calm")).map(|_| ())
}
