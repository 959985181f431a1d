// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench show`: a results file as a table.

mod ablation;
mod head;
mod rates;

use std::fmt::Write;
use std::path::Path;

use anstyle::{AnsiColor, Style};

use crate::results::{Block, Group, Results, blocks, groups};
use crate::stats::{FEW_SAMPLES, Summary, median, ratio};
use crate::sweep::{describe, size};
use crate::terminal::{
    Align, Clock, Column, NONE, Row, Screen, Table, bytes, count, faint, fields, plain, some_of, times, warning,
};

const COLUMNS: &[Column] = &[
    Column { title: "vCPUs", align: Align::Right, expendable: 0 },
    Column { title: "memory", align: Align::Right, expendable: 0 },
    Column { title: "n", align: Align::Right, expendable: 3 },
    Column { title: "failed", align: Align::Right, expendable: 0 },
    Column { title: "median", align: Align::Right, expendable: 0 },
    Column { title: "p95", align: Align::Right, expendable: 4 },
    Column { title: "spread", align: Align::Right, expendable: 2 },
    Column { title: "growth", align: Align::Right, expendable: 1 },
    Column { title: "host memory", align: Align::Right, expendable: 5 },
];
const FAILED: usize = 3;

const LEGEND: &str = "Time to init. p95: 95 % of the boots took no longer. spread: width of the middle half of the boots, in % of \
                      the median. growth: median over that of the smallest memory with the same vCPUs. host memory: of the \
                      VMM at init, median.";

/// The whole text for `results`, which lay in `path`, with styles.
#[must_use]
pub fn render(results: &Results, path: &Path, screen: Screen) -> String {
    let groups = groups(results);
    let mut out = head::head(results, path, screen);
    let warnings = warnings(results, &groups);
    if !warnings.is_empty() {
        out.push('\n');
    }
    for text in &warnings {
        out += &warning(text, screen.width);
    }
    let failures = failures(&groups);
    let (ablation, rates) = (ablation::table(&groups), rates::table(&groups));
    out += &drawn(&table(groups), LEGEND, screen);
    if let Some(table) = ablation {
        out += &drawn(&table, ablation::LEGEND, screen);
    }
    if let Some(table) = rates {
        out += &drawn(&table, rates::LEGEND, screen);
    }
    if !failures.is_empty() {
        let _ = write!(out, "\n  Last failure of each variant that had one\n{}", fields(&failures, screen.width));
    }
    out
}

fn drawn(table: &Table<'_>, legend: &str, screen: Screen) -> String {
    let (table, left_out) = table.render(screen.width);
    let mut out = format!("\n{table}\n{}", faint(legend, screen.width));
    if !left_out.is_empty() {
        out += &faint(&format!("Left out for want of room: {}.", left_out.join(", ")), screen.width);
    }
    out
}

fn warnings(results: &Results, groups: &[Group<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !results.is_complete() {
        let (is, wanted) = (results.boots.len(), results.sweep.boots_wanted());
        warnings.push(format!("incomplete: {is} of {wanted} boots; `flatboot-bench run --resume` goes on with it"));
    }
    let failed = groups.iter().map(|group| group.failed).sum();
    if failed > 0 {
        let variants = groups.iter().filter(|group| group.failed > 0).count();
        warnings.push(format!("{} failed, of {}", count(failed, "boot"), count(variants, "variant")));
    }
    let few: Vec<_> = groups.iter().map(|group| group.samples.len()).filter(|n| *n < FEW_SAMPLES).collect();
    if let Some(fewest) = few.iter().min() {
        let which = some_of(few.len(), groups.len());
        warnings
            .push(format!("fewer than {FEW_SAMPLES} samples of {which} (least: {fewest}): p95 and spread say little"));
    }
    let by_console = |group: &&Group<'_>| group.samples.iter().any(|sample| !sample.by_mark);
    let mut vmms: Vec<_> = groups.iter().filter(by_console).map(|group| plain(&group.variant.vmm)).collect();
    vmms.sort_unstable();
    vmms.dedup();
    if !vmms.is_empty() && groups.iter().any(|group| group.samples.iter().any(|sample| sample.by_mark)) {
        let vmms = vmms.join(", ");
        warnings.push(format!(
            "{vmms}: until init's first line on the console, for want of marks; the others stop earlier"
        ));
    }
    warnings
}

fn table(groups: Vec<Group<'_>>) -> Table<'static> {
    let clock = Clock::for_all(groups.iter().filter_map(|group| median(&group.inits())));
    let mut rows = Vec::new();
    for block in blocks(groups, |group| group.variant) {
        rows.push(Row::Heading(plain(&block.title)));
        rows.extend(block_rows(&block, clock));
    }
    Table { columns: COLUMNS, rows }
}

fn block_rows(block: &Block<Group<'_>>, clock: Clock) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut cpus = None;
    let mut smallest = None;
    for group in &block.items {
        let inits = group.inits();
        let first = cpus != Some(group.variant.cpus);
        if first {
            cpus = Some(group.variant.cpus);
            smallest = median(&inits);
        }
        let cells = cells(group, Summary::of(&inits), clock, smallest);
        let cpus = if first { group.variant.cpus.to_string() } else { String::new() };
        let mut row: Vec<_> = [cpus].into_iter().chain(cells).map(|text| (text, Style::new())).collect();
        if group.failed > 0 {
            row[FAILED].1 = AnsiColor::Red.on_default().bold();
        }
        rows.push(Row::Cells(row));
    }
    rows
}

/// All but the vCPUs.
fn cells(group: &Group<'_>, summary: Option<Summary>, clock: Clock, smallest: Option<u64>) -> [String; 8] {
    let of = |read: &dyn Fn(&Summary) -> Option<String>| summary.as_ref().and_then(read).unwrap_or(NONE.to_owned());
    [
        size(group.variant.memory_bytes),
        group.samples.len().to_string(),
        if group.failed == 0 { "·".to_owned() } else { group.failed.to_string() },
        of(&|summary| Some(clock.show(summary.median))),
        of(&|summary| Some(clock.show(summary.p95))),
        of(&|summary| Some(format!("{:.1} %", summary.spread_percent()))),
        of(&|summary| ratio(summary.median, smallest?).map(times)),
        median(&group.memory()).map_or(NONE.to_owned(), bytes),
    ]
}

fn failures(groups: &[Group<'_>]) -> Vec<(String, String)> {
    let failure = |group: &Group<'_>| {
        let why = plain(group.last_failure?);
        Some((plain(&describe(group.variant)), why))
    };
    groups.iter().filter_map(failure).collect()
}
