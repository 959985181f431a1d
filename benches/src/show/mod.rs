// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench show`: a results file as a table.

mod head;

use std::fmt::Write;
use std::path::Path;

use crate::results::{Group, Results, groups};
use crate::stats::FEW_SAMPLES;
use crate::sweep::describe;
use crate::terminal::{self, Screen, count, draw, fields, plain, some_of};
use crate::{ablation, fleets, init_times, rates};

/// The whole text for `results`, which lay in `path`, with styles.
#[must_use]
pub fn render(results: &Results, path: &Path, screen: Screen) -> String {
    let groups = groups(results);
    let mut out = head::head(results, path, screen);
    out += &terminal::warnings(&warnings(results, &groups), screen.width);
    let tables =
        [Some(init_times::table(&groups)), fleets::table(&groups), ablation::table(&groups), rates::table(&groups)];
    for table in tables.iter().flatten() {
        out += &draw(table, table.legend, screen.width);
    }
    let failures = failures(&groups);
    if !failures.is_empty() {
        let _ = write!(out, "\n  Last failure of each variant that had one\n{}", fields(&failures, screen.width));
    }
    out
}

fn warnings(results: &Results, groups: &[Group<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !results.is_complete() {
        let (is, wanted) = (results.boots.len(), results.sweep.boots_wanted());
        let verb = if results.sweep.variants.iter().any(|variant| variant.vms.is_some()) { "fleet" } else { "run" };
        warnings.push(format!("incomplete: {is} of {wanted} boots; `flatboot-bench {verb} --resume` goes on with it"));
    }
    let failed = groups.iter().map(|group| group.failed).sum();
    if failed > 0 {
        let variants = groups.iter().filter(|group| group.failed > 0).count();
        warnings.push(format!("{} failed, of {}", count(failed, "boot"), count(variants, "variant")));
    }
    let few: Vec<_> = groups.iter().map(|group| group.independent_inits().len()).filter(|n| *n < FEW_SAMPLES).collect();
    if let Some(fewest) = few.iter().min() {
        let which = some_of(few.len(), groups.len());
        warnings
            .push(format!("fewer than {FEW_SAMPLES} samples of {which} (least: {fewest}): p95 and spread say little"));
    }
    let booted = || groups.iter().filter(|group| group.variant.start.is_none());
    let by_console = |group: &&Group<'_>| group.samples.iter().any(|sample| !sample.by_mark);
    let mut vmms: Vec<_> = booted().filter(by_console).map(|group| plain(&group.variant.vmm)).collect();
    vmms.sort_unstable();
    vmms.dedup();
    if !vmms.is_empty() && booted().any(|group| group.samples.iter().any(|sample| sample.by_mark)) {
        let vmms = vmms.join(", ");
        warnings.push(format!(
            "{vmms}: until init's first line on the console, for want of marks; the others stop earlier"
        ));
    }
    warnings
}

fn failures(groups: &[Group<'_>]) -> Vec<(String, String)> {
    let failure = |group: &Group<'_>| {
        let why = plain(group.last_failure?);
        Some((plain(&describe(group.variant)), why))
    };
    groups.iter().filter_map(failure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::{End, Start, Variant};

    #[test]
    fn many_vms_of_few_rounds_are_few_samples() {
        let fleet = Variant { vms: Some(20), ..variant("flatboot", "async", GIB) };
        let results = sweep(vec![fleet], 3, |_, _| 1_000_000);
        let warnings = warnings(&results, &groups(&results));
        assert!(warnings[0].contains("(least: 3)"), "{warnings:?}");
    }

    #[test]
    fn what_is_not_booted_has_no_mark_of_init() {
        let with = |start| {
            let other = Variant { start, ..variant("flatboot", "async", 2 * GIB) };
            let mut results = sweep(vec![variant("flatboot", "async", GIB), other], 10, |_, _| 1_000_000);
            for boot in results.boots.iter_mut().filter(|boot| boot.variant == 1) {
                let End::Init(sample) = &mut boot.end else { continue };
                sample.by_mark = false;
            }
            warnings(&results, &groups(&results)).len()
        };
        assert_eq!([None, Some(Start::Restored { from_bytes: None })].map(with), [1, 0]);
    }
}
