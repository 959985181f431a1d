// SPDX-License-Identifier: Apache-2.0
//! The report's tables.

use maud::{Markup, html};

use crate::results::{Boot, End, Group, Start, Variant, groups};
use crate::stats::ratio;
use crate::table::{self, NONE, Table, Tone};

use super::format::{bytes, duration, milliseconds, times};
use super::model::{Section, Source};
use super::phases::Phases;
use super::plot::{Plot, Track, Unit};

/// What `make` gives for each of the files, whose names are said if there are several; none if it gives nothing.
pub(super) fn of_files(section: &Section<'_>, make: fn(&[Group<'_>]) -> Option<Table>) -> Option<Markup> {
    let tables = section.sources.iter().map(|source| (&source.name, make(&groups(&source.results))));
    let tables: Vec<_> = tables.filter_map(|(file, table)| Some((file.as_str(), table?))).collect();
    let named = section.sources.len() > 1;
    tables.first()?;
    let same = |one: usize| one > 0 && tables[one - 1].1.legend == tables[one].1.legend;
    Some(html! {
        @for (number, (file, table)) in tables.iter().enumerate() {
            @if !same(number) { p { (table.legend) } }
            (drawn(table, named.then_some(*file)))
        }
    })
}

fn drawn(table: &Table, file: Option<&str>) -> Markup {
    let class = |cell: &table::Cell| match cell.tone {
        Tone::Good => Some("strong"),
        Tone::Bad => Some("strong bad"),
        _ => None,
    };
    scroll(
        file.unwrap_or("Numbers"),
        &html! { table.summary {
            @if let Some(file) = file { caption { (file) } }
            thead { tr { @for column in table.columns { th scope="col" { (column.title) } } } }
            @for block in &table.blocks { tbody {
                tr { th scope="rowgroup" colspan=(table.columns.len()) { (block.title) } }
                @for row in &block.rows { tr { @for cell in row { td class=[class(cell)] { (cell.text) } } } }
            } }
        } },
    )
}

/// What a line chart shows: a row for each x, a column for each line.
pub(super) fn plot(plot: &Plot, unit: Unit, what: &str) -> Markup {
    let cell = |track: &Track, x| {
        let summary = track.spots.iter().find(|spot| spot.x == x)?.summary;
        let (median, p25, p75) = (unit.show(summary.median), unit.show(summary.p25), unit.show(summary.p75));
        Some(format!("{median} ({p25} to {p75}, n {})", summary.n))
    };
    data(
        what,
        &html! {
            thead { tr { td {} @for track in &plot.tracks { th scope="col" { (track.name) } } } }
            tbody { @for (x, name) in &plot.ticks {
                tr {
                    th scope="row" { (name) }
                    @for track in &plot.tracks { td { (cell(track, *x).unwrap_or(NONE.into())) } }
                }
            } }
        },
    )
}

/// What the bars show: a row for each variant, a column for each phase.
pub(super) fn phases(phases: &Phases) -> Markup {
    data(
        "Where the time goes",
        &html! {
            thead { tr {
                th scope="col" { "Variant" }
                @for phase in &phases.legend { th scope="col" { (phase.letter) ": " (phase.name) } }
                th scope="col" { "Sum" }
            } }
            tbody { @for bar in &phases.bars {
                tr {
                    th scope="row" { (bar.heading) ", " (bar.name) }
                    @for part in &bar.parts { td { (duration(*part)) } }
                    td { (duration(bar.total())) }
                }
            } }
        },
    )
}

/// Columns of the raw samples, and whether they hold text. Those that would say nothing are left out.
const RAW: [(&str, bool); 14] = [
    ("File", true),
    ("Round", false),
    ("VMM", true),
    ("Mode", true),
    ("Threads", true),
    ("Without", true),
    ("Start", true),
    ("vCPUs", false),
    ("Memory", false),
    ("Init, ms", false),
    ("Init by", true),
    ("Console, ms", false),
    ("Guest runs, ms", false),
    ("Host memory", false),
];

/// A cell: what is shown, and for numbers what it is sorted by.
type Cell = (String, Option<u64>);

/// A sample.
type Row = [Cell; RAW.len()];

/// Every sample that counts, in the order in which they ran.
pub(super) fn raw(section: &Section<'_>) -> Markup {
    let rows: Vec<_> = section.sources.iter().flat_map(|source| rows(source)).collect();
    let several = section.sources.len() > 1;
    let says = |column: usize| if column == 0 { several } else { rows.iter().any(|row| row[column].0 != NONE) };
    let shown: Vec<_> = (0..RAW.len()).filter(|column| says(*column)).collect();
    scroll(
        "Raw samples",
        &html! {
            table.raw data-sort {
                thead { tr { @for column in &shown {
                    @let (name, is_text) = RAW[*column];
                    th.text[is_text] scope="col" aria-sort="none" { button type="button" { (name) } }
                } } }
                tbody { @for row in &rows {
                    tr { @for column in &shown {
                        @let (text, value) = &row[*column];
                        td.text[RAW[*column].1] data-v=[*value] { (text) }
                    } }
                } }
            }
        },
    )
}

fn rows(source: &Source) -> impl Iterator<Item = Row> {
    let variant = |boot: &Boot| &source.results.sweep.variants[boot.variant];
    source.results.boots.iter().filter_map(move |boot| row(&source.name, variant(boot), boot))
}

fn row(file: &str, variant: &Variant, boot: &Boot) -> Option<Row> {
    let sample = boot.sample()?;
    let text = |text: &str| (text.to_owned(), None);
    let number = |value: u64| (value.to_string(), Some(value));
    let time = |ns: u64| (milliseconds(ns), Some(ns));
    let size = |size: u64| (bytes(size), Some(size));
    Some([
        text(file),
        number(boot.round.into()),
        text(&variant.vmm),
        text(&variant.mode),
        text(variant.threads.as_deref().unwrap_or(NONE)),
        text(variant.without.as_deref().unwrap_or(NONE)),
        text(variant.started().strip_prefix(", ").unwrap_or(NONE)),
        number(variant.cpus.into()),
        size(variant.memory_bytes),
        time(sample.init_ns),
        text(match variant.start {
            Some(Start::Resized { .. }) => "request",
            _ if sample.by_mark => "mark",
            _ => "console",
        }),
        time(sample.console_ns),
        sample.first_instruction_ns.map_or(text(NONE), time),
        size(sample.host_memory_bytes),
    ])
}

/// Every failed boot, those of the warm-up round too; none if there is none.
pub(super) fn failures(section: &Section<'_>) -> Option<Markup> {
    let failures = section.sources.iter().flat_map(|source| {
        source.results.boots.iter().filter_map(|boot| match &boot.end {
            End::Failed { why, console } => {
                Some((source.name.as_str(), &source.results.sweep.variants[boot.variant], boot.round, why, console))
            }
            End::Init(_) => None,
        })
    });
    let failures: Vec<_> = failures.collect();
    (!failures.is_empty()).then(|| html! {
        ul.failures { @for (file, variant, round, why, console) in failures {
            li {
                strong { (why) }
                " – " (called(variant)) ", " @if round == 0 { "warm-up round" } @else { "round " (round) } ", " (file)
                @if !console.is_empty() {
                    details { summary { "End of its console" } pre tabindex="0" { (console.join("\n")) } }
                }
            }
        } }
    })
}

fn called(variant: &Variant) -> String {
    let Variant { vmm, mode, memory_bytes, cpus, threads, without, vms, .. } = variant;
    let vms = vms.map_or(String::new(), |vms| format!("{vms} × "));
    let threads = threads.as_ref().map_or(String::new(), |threads| format!(", threads {threads}"));
    let without = without.as_ref().map_or(String::new(), |without| format!(", without {without}"));
    let started = variant.started();
    format!("{vms}{vmm}, {mode}{threads}{without}{started}, {cpus} vCPUs, {}", bytes(*memory_bytes))
}

/// Speed-up from the fewest vCPUs to the most, in words; none where nothing was booted with both.
pub(super) fn speed_up(plot: &Plot) -> Vec<String> {
    let sentence = |track: &Track| {
        let [first, .., last] = track.spots.as_slice() else { return None };
        let times = times(ratio(first.summary.median, last.summary.median)?);
        Some(format!("{}: {} is {times} times as fast as {}", track.name, plot.called(last.x), plot.called(first.x)))
    };
    plot.tracks.iter().filter_map(sentence).collect()
}

fn data(what: &str, rows: &Markup) -> Markup {
    html! { details.data { summary { "The data of this chart" } (scroll(what, &html! { table { (rows) } })) } }
}

/// Wide content scrolls by itself, with the keyboard too.
pub(super) fn scroll(what: &str, content: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(what) { (content) } }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{GIB, sweep, variant};
    use super::super::model::{sections, sources};
    use super::*;
    use crate::ablation;
    use crate::results::Start;

    #[test]
    fn raw_samples_tell_a_restore_from_a_boot() {
        let drawn = |start| {
            let variants = [None, start].map(|start| Variant { start, ..variant("flatboot", "async", GIB) });
            let sources = sources(vec![("r.json".into(), sweep(variants.to_vec(), 1, |_, _| 1))]);
            raw(&sections(&sources)[0]).into_string()
        };
        let restored = drawn(Some(Start::Restored { from_bytes: Some(GIB / 2) }));
        assert!(restored.contains(">Start<") && restored.contains(">restored from 512 MiB<"), "{restored}");
        assert!(!drawn(None).contains(">Start<"));
    }

    #[test]
    fn parts_have_a_table_where_one_was_switched_off() {
        let variants =
            [None, Some("a<b".to_owned())].map(|without| Variant { without, ..variant("flatboot", "async", GIB) });
        let results = sweep(variants.to_vec(), 6, |variant, _| [1_000_000_000, 1_500_000_000][variant]);
        let full = sweep(vec![variant("flatboot", "async", GIB)], 6, |_, _| 1);
        let sources = sources(vec![("r.json".into(), results), ("s.json".into(), full)]);
        let drawn = of_files(&sections(&sources)[0], ablation::table).unwrap().into_string();
        let cells = "<td>a&lt;b</td><td>1 GiB</td><td>6</td><td>1.000 s</td><td>1.500 s</td>\
                     <td class=\"strong\">1.500</td><td>1.500 – 1.500</td><td>40.0 MiB → 40.0 MiB</td>";
        assert!(drawn.contains(cells) && drawn.contains("flatboot async, 2 vCPUs: what each"), "{drawn}");
        assert!(drawn.contains("<caption>r.json</caption>") && !drawn.contains("s.json"), "{drawn}");
        assert!(of_files(&sections(&sources[1..])[0], ablation::table).is_none());
    }
}
