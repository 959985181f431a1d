// SPDX-License-Identifier: Apache-2.0
//! A comparison as text.

use std::fmt::Write;

use anstyle::AnsiColor;

use crate::results::{Variant, blocks};
use crate::stats::{FEW_SAMPLES, LEAST_SAMPLES, RESAMPLES};
use crate::sweep::describe;
use crate::table::{Block, Cell, Column, Table, Tone, left, or_none, right};
use crate::terminal::{self, Clock, Screen, bold, count, draw, faint, fields, loud, plain, size, some_of};

use super::differences::{Difference, others};
use super::gate::Gate;
use super::pairs::{Matched, Pair, Side, Verdict};

const COLUMNS: &[Column] = &[
    right("vCPUs", 0).once(),
    right("memory", 0),
    right("n", 2),
    right("median A", 4),
    right("median B", 3),
    right("B / A", 0),
    right("95 % interval", 1),
    left("verdict"),
];

pub(super) fn render(
    sides: [Side<'_>; 2],
    hosts: &[Difference],
    matched: Matched<'_>,
    gate: Option<&Gate>,
    screen: Screen,
) -> String {
    let mut out = head(sides, hosts, matched.pairs.len(), screen);
    out += &terminal::warnings(&warnings(sides, hosts, &matched.pairs), screen.width);
    let summary = summary(&matched.pairs);
    let only = [only("A", &matched.only_a), only("B", &matched.only_b)].concat();
    out += &draw(&table(matched.pairs), &summary, screen.width);
    if !only.is_empty() {
        let _ = write!(out, "\n{}", fields(&only, screen.width));
    }
    if let Some(gate) = gate {
        let _ = write!(out, "\n{}", verdict_of(gate, screen));
    }
    out
}

fn head(sides: [Side<'_>; 2], hosts: &[Difference], shared: usize, screen: Screen) -> String {
    let [a, b] = sides.map(|side| {
        let facts = &side.results.facts;
        (plain(&side.path.display().to_string()), plain(&facts.started()), plain(&facts.host.words()))
    });
    let title = bold(&format!("A: {}, B: {}: {} in both", a.0, b.0, count(shared, "variant")));
    let mut list = vec![("A began".to_owned(), a.1), ("B began".to_owned(), b.1)];
    if a.2 == b.2 {
        list.push(("host".to_owned(), a.2));
    } else {
        list.extend([("host of A".to_owned(), a.2), ("host of B".to_owned(), b.2)]);
    }
    let mut out = format!("{title}\n{}", fields(&list, screen.width));
    let all = hosts.iter().map(|difference| (difference.what.clone(), difference.change()));
    let others = others(sides[0].results, sides[1].results);
    let list: Vec<_> =
        all.chain(others.iter().map(|difference| (difference.what.clone(), difference.change()))).collect();
    if list.is_empty() {
        let _ = write!(out, "\n{}", faint("Host, guest, programs and command line are the same.", screen.width));
    } else {
        let _ = write!(out, "\n  What else differs, A → B\n{}", fields(&list, screen.width));
    }
    out
}

fn warnings(sides: [Side<'_>; 2], hosts: &[Difference], pairs: &[Pair<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !hosts.is_empty() {
        let what: Vec<_> = hosts.iter().map(|difference| difference.what.as_str()).collect();
        warnings.push(format!("the hosts differ ({}): a ratio says as much of them as of the guests", what.join(", ")));
    }
    for (name, side) in ["A", "B"].into_iter().zip(sides) {
        let (is, wanted) = (side.results.boots.len(), side.results.sweep.boots_wanted());
        if !side.results.is_complete() {
            warnings.push(format!("{name} is incomplete: {is} of {wanted} boots"));
        }
    }
    for (name, failed) in [
        ("A", pairs.iter().map(|pair| pair.a.failed).sum::<usize>()),
        ("B", pairs.iter().map(|pair| pair.b.failed).sum()),
    ] {
        if failed > 0 {
            warnings.push(format!("{name}: {} failed; `flatboot-bench show` says why", count(failed, "boot")));
        }
    }
    let few: Vec<_> = pairs.iter().map(Pair::n).filter(|n| *n < FEW_SAMPLES).collect();
    if let Some(least) = few.iter().min() {
        let which = some_of(few.len(), pairs.len());
        warnings
            .push(format!("fewer than {FEW_SAMPLES} samples of {which} (least: {least}): only large differences show"));
    }
    let unlike = pairs.iter().filter(|pair| is_unlike(pair)).count();
    if unlike > 0 {
        let which = count(unlike, "variant");
        warnings.push(format!(
            "{which}: one file ends at the kernel's mark, the other at init's first line on the console"
        ));
    }
    warnings
}

/// Whether its samples end at different moments.
fn is_unlike(pair: &Pair<'_>) -> bool {
    let mut kinds = pair.a.samples.iter().chain(&pair.b.samples).map(|sample| sample.by_mark);
    let first = kinds.next();
    kinds.any(|kind| Some(kind) != first)
}

fn table(pairs: Vec<Pair<'_>>) -> Table {
    let clock = Clock::for_all(pairs.iter().flat_map(|pair| [pair.median_a, pair.median_b]).flatten());
    let blocks = blocks(pairs, |pair| pair.a.variant)
        .into_iter()
        .map(|kin| Block { title: plain(&kin.title), rows: kin.items.iter().map(|pair| row(pair, clock)).collect() });
    Table { columns: COLUMNS, blocks: blocks.collect(), legend: "" }
}

fn row(pair: &Pair<'_>, clock: Clock) -> Vec<Cell> {
    let variant = pair.a.variant;
    let (a, b) = (pair.a.independent_inits().len(), pair.b.independent_inits().len());
    let (word, tone) = match pair.verdict() {
        Verdict::Faster => ("faster", Tone::Good),
        Verdict::Slower => ("slower", Tone::Bad),
        Verdict::NoDifference => ("no difference shown", Tone::Nothing),
        Verdict::TooFew => ("too few samples", Tone::Doubtful),
    };
    let mut ratio = or_none(pair.resampled.as_ref(), |resampled| format!("{:.3}", resampled.ratio));
    if matches!(tone, Tone::Good | Tone::Bad) {
        ratio.tone = tone;
    }
    vec![
        variant.cpus.into(),
        size(variant.memory_bytes).into(),
        if a == b { a.into() } else { format!("{a}, {b}").into() },
        or_none(pair.median_a, |ns| clock.show(ns)),
        or_none(pair.median_b, |ns| clock.show(ns)),
        ratio,
        or_none(pair.interval(), |interval| interval.to_string()),
        Cell::new(word.to_owned(), tone),
    ]
}

fn summary(pairs: &[Pair<'_>]) -> String {
    let of = |verdict| pairs.iter().filter(|pair| pair.verdict() == verdict).count();
    let mut parts = vec![
        format!("{} slower", of(Verdict::Slower)),
        format!("{} faster", of(Verdict::Faster)),
        format!("{} without a difference shown", of(Verdict::NoDifference)),
    ];
    if of(Verdict::TooFew) > 0 {
        parts.push(format!("{} with fewer than {LEAST_SAMPLES} samples", of(Verdict::TooFew)));
    }
    format!(
        "{}. B / A: ratio of the median times. Interval: bootstrap of {RESAMPLES} resamples; of 20 variants \
         without any difference about 1 shows one by chance.",
        parts.join(", ")
    )
}

fn only(name: &str, variants: &[&Variant]) -> Vec<(String, String)> {
    variants.iter().map(|variant| (format!("only in {name}"), plain(&describe(variant)))).collect()
}

fn verdict_of(gate: &Gate, screen: Screen) -> String {
    let limit = gate.limit;
    let (word, color) = match gate.exit_code() {
        0 => ("held", AnsiColor::Green),
        1 => ("FAILED", AnsiColor::Red),
        _ => ("NOT KNOWN", AnsiColor::Yellow),
    };
    let option = if gate.if_shown { " --if-shown" } else { "" };
    let failed = if gate.if_shown {
        "Shown to be slower (intervals that hold for all variants at once)"
    } else {
        "Above (intervals that hold for all variants at once; --if-shown fails only what is shown to be slower)"
    };
    let mut out = format!("--fail-above {limit}{option}: {}\n", loud(word, color));
    for (title, list) in [
        (failed, &gate.failed),
        ("Cannot be judged", &gate.unknown),
        ("Above, but noise alone can do that (intervals that hold for all variants at once)", &gate.noise),
    ] {
        if !list.is_empty() {
            let _ = write!(out, "  {title}\n{}", fields(list, screen.width));
        }
    }
    out
}
