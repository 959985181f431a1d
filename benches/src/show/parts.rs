// SPDX-License-Identifier: Apache-2.0
//! What each part is worth: a variant with one part switched off, over the same with the full set.

use anstyle::{AnsiColor, Style};

use crate::compare::LEAST;
use crate::results::{Group, Variant, blocks};
use crate::stats::{Resampled, median};
use crate::sweep::size;
use crate::terminal::{Align, Clock, Column, Row, Table, bytes, plain};

use super::NONE;

const COLUMNS: &[Column] = &[
    Column { title: "switched off", align: Align::Left, expendable: 0 },
    Column { title: "memory", align: Align::Right, expendable: 0 },
    Column { title: "n", align: Align::Right, expendable: 3 },
    Column { title: "full set", align: Align::Right, expendable: 2 },
    Column { title: "without", align: Align::Right, expendable: 1 },
    Column { title: "ratio", align: Align::Right, expendable: 0 },
    Column { title: "95 % interval", align: Align::Right, expendable: 0 },
    Column { title: "host memory", align: Align::Right, expendable: 4 },
];

pub(super) const LEGEND: &str = "ratio: median time to init without the part over that of the full set; 1.5 says that boots take half \
                                 as long again without it. An interval that contains 1 shows no difference. host memory: the full \
                                 set's and what it is without, medians.";

/// By chance an interval leaves out the truth so often.
const CHANCE: f64 = 0.05;

/// A row for each part and size, under a heading for each VMM, mode, thread cap and number of vCPUs; none if no part was
/// switched off.
pub(super) fn table(groups: &[Group<'_>]) -> Option<Table<'static>> {
    let pairs: Vec<(&Group<'_>, &Group<'_>)> =
        groups.iter().filter_map(|without| Some((without, full_set(without.variant, groups)?))).collect();
    let clock = Clock::for_all(pairs.iter().flat_map(|(a, b)| [a, b]).filter_map(|group| median(&group.inits())));
    let mut rows = Vec::new();
    for sets in blocks(pairs, |(_, full)| full.variant) {
        let mut cpus: Vec<_> = sets.items.iter().map(|(_, full)| full.variant.cpus).collect();
        cpus.dedup();
        for cpus in cpus {
            rows.push(Row::Heading(plain(&title(&sets.title, cpus))));
            let of_size: Vec<_> = sets.items.iter().filter(|(_, full)| full.variant.cpus == cpus).copied().collect();
            for part in blocks(of_size, |(without, _)| without.variant) {
                for (index, (without, full)) in part.items.iter().enumerate() {
                    let name = without.variant.without.as_deref().filter(|_| index == 0);
                    rows.push(row(without, full, clock, name.unwrap_or_default()));
                }
            }
        }
    }
    (!rows.is_empty()).then_some(Table { columns: COLUMNS, rows })
}

fn title(kind: &str, cpus: u8) -> String {
    format!("{kind}, {cpus} vCPU{}: what each part is worth", if cpus == 1 { "" } else { "s" })
}

/// The same variant with nothing switched off; none of one that has nothing switched off itself.
fn full_set<'a, 'b>(variant: &Variant, groups: &'a [Group<'b>]) -> Option<&'a Group<'b>> {
    variant.without.as_ref()?;
    let full = Variant { without: None, ..variant.clone() };
    groups.iter().find(|group| *group.variant == full)
}

fn row(without: &Group<'_>, full: &Group<'_>, clock: Clock, name: &str) -> Row {
    let (inits, of_full) = (without.inits(), full.inits());
    let resampled = Resampled::ratio_of_medians(&inits, &of_full);
    let n = inits.len().min(of_full.len());
    let interval = resampled.as_ref().filter(|_| n >= LEAST).map(|resampled| resampled.interval(CHANCE));
    let style = match interval {
        Some(interval) if interval.low > 1.0 => AnsiColor::Green.on_default().bold(),
        Some(interval) if interval.high < 1.0 => AnsiColor::Red.on_default().bold(),
        _ => Style::new(),
    };
    let none = || NONE.to_owned();
    let time = |inits: &[u64]| median(inits).map_or_else(none, |ns| clock.show(ns));
    let memory = |group: &Group<'_>| median(&group.memory()).map_or_else(none, bytes);
    let interval = interval.map_or_else(none, |interval| format!("{:.3} – {:.3}", interval.low, interval.high));
    let cells = [
        plain(name),
        size(without.variant.memory_bytes),
        n.to_string(),
        time(&of_full),
        time(&inits),
        resampled.map_or_else(none, |resampled| format!("{:.3}", resampled.ratio)),
        interval,
        format!("{} → {}", memory(full), memory(without)),
    ];
    let mut cells: Vec<_> = cells.into_iter().map(|text| (text, Style::new())).collect();
    cells[5].1 = style;
    Row::Cells(cells)
}
