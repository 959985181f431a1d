// SPDX-License-Identifier: Apache-2.0
//! Promises that a sweep keeps: `flatboot-bench run` is run, and its results are judged.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::bound::{Bound, CLOSEST, ROUNDS_OF_CLOSE_BOUNDS, ROUNDS_OF_CLOSEST_BOUNDS};
use super::clocks;
use super::mode;
use super::outcome::{Outcome, Status};
use super::samples::milliseconds;
use crate::rates::{Rate, rates};
use crate::results::{self, Group, Results, groups};
use crate::stats::{self, median};
use crate::sweep::describe;
use crate::terminal::bytes;

/// What is promised of a sweep's results.
#[derive(Debug)]
pub struct SweepClaim {
    /// The VMM, or several with commas between them, as `flatboot-bench run` calls it.
    pub vmm: &'static str,
    /// The mode of `memmap_init=`.
    pub mode: &'static str,
    /// The sizes of memory, with commas between them. The VMs have 2 vCPUs.
    pub memory: &'static str,
    /// What else `flatboot-bench run` is told, besides the number of runs and the file.
    pub options: &'static [&'static str],
    /// What is read off the results, and what it must be.
    pub measure: Measure,
}

/// What is read off a sweep's results.
#[derive(Debug)]
pub enum Measure {
    /// Time to init with the most memory over that with the least, median of the rounds.
    Growth(Bound),
    /// Median host memory at init, in MiB, of the largest variant: at most so much.
    HostMemory(u64),
    /// What guests got done over what its yardstick did, median of the rounds, of the workload that fares worst.
    Work(Bound),
    /// By how many per cent [`super::clocks`] differ: at most so many.
    Clocks(f64),
}

const NO_SIZES: &str = "the sweep has no two sizes to compare";
const NO_WORK: &str = "the sweep has no workload to compare";

/// Runs `flatboot-bench run` with `arguments` and `runs` rounds that count. The results stay in `out`.
pub(super) fn run(arguments: &[&str], runs: usize, out: &Path) -> Result<Results> {
    let own = env::current_exe().context("flatboot-bench run")?;
    let mut command = Command::new(own);
    command.arg("run").args(arguments).arg("--runs").arg(runs.to_string()).arg("--out").arg(out);
    let output = command.stdin(Stdio::null()).output().context("flatboot-bench run")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).lines().next_back().unwrap_or_default().to_owned();
        bail!("flatboot-bench run: {}: {said}", output.status);
    }
    results::load(out)
}

impl SweepClaim {
    /// What `flatboot-bench run` is told, besides the number of runs and the file.
    pub(super) fn arguments(&self) -> Vec<&'static str> {
        let sweep = ["--vmm", self.vmm, "--mode", self.mode, "--memory", self.memory, "--cpus", "2"];
        [&sweep, self.options].concat()
    }

    /// What the number must be, in words.
    pub(super) fn bound(&self) -> String {
        match self.measure {
            Measure::Growth(bound) | Measure::Work(bound) => bound.to_string(),
            Measure::HostMemory(mib) => format!("at most {mib} MiB"),
            Measure::Clocks(percent) => format!("at most {percent} %"),
        }
    }

    /// Whether that number is a ratio.
    pub(super) const fn is_ratio(&self) -> bool {
        matches!(self.measure, Measure::Growth(_) | Measure::Work(_))
    }

    /// The rounds that count, of a sweep that is worth `runs`.
    pub(super) fn rounds(&self, runs: usize) -> usize {
        match self.measure {
            Measure::Growth(Bound::AtMost(most)) if most < CLOSEST => runs.saturating_mul(ROUNDS_OF_CLOSEST_BOUNDS),
            Measure::Growth(_) => runs.saturating_mul(ROUNDS_OF_CLOSE_BOUNDS),
            Measure::Work(bound) if is_close(bound) => runs.saturating_mul(ROUNDS_OF_CLOSE_BOUNDS),
            Measure::HostMemory(_) | Measure::Work(_) | Measure::Clocks(_) => runs,
        }
    }

    /// Whether it holds of `results`.
    pub(super) fn judge(&self, results: &Results) -> Result<Outcome> {
        let mut groups = groups(results);
        groups.sort_by_key(|group| group.variant.memory_bytes);
        if let Some(group) = groups.iter().find(|group| group.failed > 0 || group.samples.is_empty()) {
            bail!(failure(group));
        }
        mode::is_in_effect(&groups)?;
        all_work(&groups, &results.sweep.work)?;
        if let Measure::Work(bound) = self.measure {
            return work(&groups, bound);
        }
        let (Some(smallest), Some(largest)) = (groups.first(), groups.last()) else { bail!(NO_SIZES) };
        let runs =
            if largest.samples.len() == 1 { "1 run".to_owned() } else { format!("{} runs", largest.samples.len()) };
        let (holds, measured) = match self.measure {
            Measure::Growth(_) if groups.len() < 2 => bail!(NO_SIZES),
            Measure::Growth(bound) => {
                let (above, below) = largest.paired(smallest, |sample| Some(sample.init_ns));
                let ratio = stats::ratio_by_round(&above, &below).unwrap_or(f64::NAN);
                let of = |group: &Group<'_>| milliseconds(median(&group.inits()));
                (bound.holds(ratio), format!("{ratio:.3} ×  ({} / {} ms, {runs})", of(largest), of(smallest)))
            }
            Measure::HostMemory(mib) => {
                let taken = median(&largest.memory()).unwrap_or(u64::MAX);
                (taken <= mib << 20, format!("{}  ({runs})", bytes(taken)))
            }
            Measure::Clocks(percent) => {
                let is = clocks::difference(largest.samples.iter().copied())?;
                (is <= percent, format!("{is:.2} %  (median of {runs})"))
            }
            Measure::Work(_) => bail!(NO_WORK),
        };
        let status = if holds { Status::Held } else { Status::Missed };
        Ok(Outcome { status, measured, details: groups.iter().map(line).collect() })
    }
}

/// Whether each boot tells a rate of all of `work`.
fn all_work(groups: &[Group<'_>], work: &[String]) -> Result<()> {
    for group in groups {
        if let Some(name) = group.samples.iter().find_map(|sample| sample.lacks(work)) {
            bail!("{}: a boot tells no rate of {name}", describe(group.variant));
        }
    }
    Ok(())
}

/// Whether the workload that fares worst holds `bound`. Where both are to do about as much, it is missed by what is shown to do less:
/// of many medians the least is below by chance.
fn work(groups: &[Group<'_>], bound: Bound) -> Result<Outcome> {
    let all = rates(groups);
    let high = |rate: &Rate| rate.by_round_interval.map(|interval| interval.high);
    let judged = |rate: &Rate| if is_close(bound) { high(rate) } else { rate.by_round };
    let compared = all.iter().flat_map(|variant| &variant.rates).filter_map(|rate| Some((judged(rate)?, rate)));
    let (most, worst) = compared.min_by(|(a, _), (b, _)| a.total_cmp(b)).context(NO_WORK)?;
    let told = |rate: &Rate| {
        let median = |median: Option<u64>| median.map_or_else(|| "-".to_owned(), |median| rate.show(median));
        let (own, other) = (median(rate.median), median(rate.yardstick));
        format!("{:<10}  {:>5} ×  ({own} / {other})", rate.workload.name, by_round(rate))
    };
    let status = if bound.holds(most) { Status::Held } else { Status::Missed };
    let details = all.iter().flat_map(|variant| &variant.rates).map(told).collect();
    Ok(Outcome {
        status,
        measured: format!("{} ×  ({}, the least; {} runs)", by_round(worst), worst.workload.name, worst.n),
        details,
    })
}

fn by_round(rate: &Rate) -> String {
    let interval = rate.by_round_interval.map(|interval| format!(" [{interval}]")).unwrap_or_default();
    rate.by_round.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}{interval}"))
}

/// Whether both are to do about as much.
fn is_close(bound: Bound) -> bool {
    matches!(bound, Bound::AtLeast(least) if least < 1.0)
}

/// A claim is made of all boots or of none.
fn failure(group: &Group<'_>) -> String {
    let (failed, all) = (group.failed, group.failed + group.samples.len());
    let why = group.last_failure.unwrap_or("there was none");
    format!("{}: {failed} of {all} boots failed, the last: {why}", describe(group.variant))
}

fn line(group: &Group<'_>) -> String {
    let (inits, memory) = (group.inits(), group.memory());
    format!(
        "{}: {} boots, {} ms to init (median; {} to {}), {} of host memory",
        describe(group.variant),
        inits.len(),
        milliseconds(median(&inits)),
        milliseconds(inits.first().copied()),
        milliseconds(inits.last().copied()),
        median(&memory).map_or_else(|| "-".to_owned(), bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::super::mode::tests::in_effect;
    use super::*;
    use crate::rates::tests::worked;
    use crate::report::fixture::{GIB, mark, sweep, variant};
    use crate::results::End;

    /// The larger of two sizes takes `times` hundredths of a second, the smaller 100 of them; 40 MiB each.
    fn sizes(hundredths: u64) -> Results {
        // The larger one first: it is not the order that counts.
        let variants = [256, 1].map(|gib| variant("flatboot", "async", gib * GIB)).to_vec();
        sweep(variants, 3, |variant, round| match (variant, round) {
            (_, 0) => 1,
            (0, _) => hundredths * 10_000_000,
            _ => 1_000_000_000,
        })
    }

    fn claim(measure: Measure) -> SweepClaim {
        SweepClaim { vmm: "", mode: "", memory: "", options: &[], measure }
    }

    fn judged(measure: Measure, results: &Results) -> Outcome {
        claim(measure).judge(&in_effect(results.clone())).unwrap()
    }

    fn error(measure: Measure, results: &Results) -> String {
        claim(measure).judge(&in_effect(results.clone())).unwrap_err().to_string()
    }

    #[test]
    fn the_closer_the_bound_the_more_rounds() {
        let rounds = |measure| claim(measure).rounds(10);
        assert_eq!([1.03, 1.05, 1.1].map(|most| rounds(Measure::Growth(Bound::AtMost(most)))), [60, 30, 30]);
        assert_eq!([0.97, 1.0].map(|least| rounds(Measure::Work(Bound::AtLeast(least)))), [30, 10]);
        assert_eq!(rounds(Measure::HostMemory(40)), 10);
    }

    #[test]
    fn growth_is_that_of_the_largest_over_the_smallest() {
        let outcome = judged(Measure::Growth(Bound::AtMost(1.1)), &sizes(110));
        assert_eq!(
            (outcome.status, outcome.measured.as_str()),
            (Status::Held, "1.100 ×  (1100.00 / 1000.00 ms, 3 runs)")
        );
        assert_eq!(judged(Measure::Growth(Bound::AtMost(1.1)), &sizes(111)).status, Status::Missed);
    }

    #[test]
    fn host_memory_is_held_to_its_bound() {
        let outcome = judged(Measure::HostMemory(40), &sizes(100));
        assert_eq!((outcome.status, outcome.measured.as_str()), (Status::Held, "40.0 MiB  (3 runs)"));
        assert_eq!(judged(Measure::HostMemory(39), &sizes(100)).status, Status::Missed);
    }

    #[test]
    fn the_worst_workload_is_held_to_the_bound() {
        let results = worked("tx-1", |variant, round| [99, 100][variant] * u64::from(round + 1));
        let outcome = judged(Measure::Work(Bound::AtLeast(0.99)), &results);
        assert_eq!(
            (outcome.status, outcome.measured.as_str()),
            (Status::Held, "0.990 [0.990 – 0.990] ×  (tx-1, the least; 7 runs)")
        );
        assert_eq!(judged(Measure::Work(Bound::AtLeast(1.0)), &results).status, Status::Missed);
        assert_eq!(error(Measure::Work(Bound::AtLeast(1.0)), &sizes(100)), NO_WORK);
    }

    #[test]
    fn every_boot_tells_of_every_workload() {
        let mut results = worked("tx-1", |_, _| 100);
        results.sweep.work = vec!["tx-1".to_owned(), "rx-4".to_owned()];
        let error = error(Measure::Work(Bound::AtLeast(0.5)), &results);
        assert!(error.ends_with("2 vCPUs: a boot tells no rate of rx-4"), "{error}");
    }

    #[test]
    fn clocks_are_those_of_all_boots() {
        let mut results = sweep(vec![variant("flatboot", "parallel", GIB)], 3, |_, _| 1_000_000_000);
        for boot in &mut results.boots {
            let End::Init(sample) = &mut boot.end else { continue };
            sample.marks = vec![mark(1_000_000_000, "user-start", true)];
            sample.console_ns = 1_020_000_000;
        }
        let outcome = judged(Measure::Clocks(2.0), &results);
        assert_eq!((outcome.status, outcome.measured.as_str()), (Status::Held, "2.00 %  (median of 3 runs)"));
        assert_eq!(judged(Measure::Clocks(1.9), &results).status, Status::Missed);
        let of = |end| {
            let mut broken = results.clone();
            broken.boots[3].end = end;
            error(Measure::Clocks(2.0), &broken)
        };
        let failed = End::Failed { why: "no init".to_owned(), console: Vec::new() };
        assert!(of(failed).ends_with("1 of 3 boots failed, the last: no init"));
        let unmarked = sweep(vec![variant("flatboot", "parallel", GIB)], 1, |_, _| 1).boots.remove(1).end;
        assert!(of(unmarked).contains("no mark"));
    }

    #[test]
    fn work_is_judged_by_the_rounds_and_not_by_their_noise() {
        let with = |ours: u64| {
            // What slows a round tenfold slows both.
            let results = worked("tx-1", |variant, round| [ours, 1000][variant] * [1, 10][(round % 2) as usize]);
            judged(Measure::Work(Bound::AtLeast(0.97)), &results).status
        };
        assert_eq!([1000, 970, 960].map(with), [Status::Held, Status::Held, Status::Missed]);
    }

    #[test]
    fn what_is_less_by_chance_is_not_shown_to_be() {
        let with = |last: u64| {
            let ours = |round: u32| if round < 6 { 960 } else { last };
            let results = worked("tx-1", |variant, round| [ours(round), 1000][variant]);
            judged(Measure::Work(Bound::AtLeast(0.97)), &results)
        };
        let (held, missed) = (with(1100), with(960));
        assert_eq!((held.status, missed.status), (Status::Held, Status::Missed));
        assert!(held.measured.starts_with("0.960 [0.960 – 1.100] ×  (tx-1, the least; "), "{}", held.measured);
    }

    #[test]
    fn nothing_is_claimed_of_boots_that_failed() {
        let growth = || Measure::Growth(Bound::AtMost(9.0));
        let mut broken = sizes(100);
        broken.boots[4].end = End::Failed { why: "no init".to_owned(), console: Vec::new() };
        assert_eq!(
            error(growth(), &broken),
            "flatboot async, 256 GiB, 2 vCPUs: 1 of 3 boots failed, the last: no init"
        );
        let one = sweep(vec![variant("flatboot", "async", GIB)], 1, |_, _| 1);
        assert_eq!(error(growth(), &one), NO_SIZES);
        assert!(claim(growth()).judge(&sizes(100)).is_err(), "its mode is not seen");
    }
}
