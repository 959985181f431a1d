// SPDX-License-Identifier: Apache-2.0
//! The table of what each part is worth.

use anstyle::{AnsiColor, Style};

use crate::ablation::{Part, Worth, sets};
use crate::results::Group;
use crate::stats::median;
use crate::sweep::size;
use crate::terminal::{Align, Clock, Column, NONE, Row, Table, bytes, plain};

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
const RATIO: usize = 5;

pub(super) const LEGEND: &str = "ratio: median time to init without the part over that of the full set; 1.5 says that boots take half \
                                 as long again without it. An interval that contains 1 shows no difference. host memory: the full \
                                 set's and what it is without, medians.";

/// A row for each part and size; none if no part was switched off.
pub(super) fn table(groups: &[Group<'_>]) -> Option<Table<'static>> {
    let sets = sets(groups);
    let parts = sets.iter().flat_map(|set| &set.parts).flat_map(|part| [part.full, part.without]);
    let clock = Clock::for_all(parts.filter_map(|group| median(&group.inits())));
    let mut rows = Vec::new();
    for set in &sets {
        rows.push(Row::Heading(format!("{}: what each part is worth", plain(&set.title))));
        let mut above = None;
        for part in &set.parts {
            rows.push(row(part, clock, above.replace(part.name) != Some(part.name)));
        }
    }
    (!rows.is_empty()).then_some(Table { columns: COLUMNS, rows })
}

fn row(part: &Part<'_>, clock: Clock, named: bool) -> Row {
    let none = || NONE.to_owned();
    let time = |group: &Group<'_>| median(&group.inits()).map_or_else(none, |ns| clock.show(ns));
    let memory = |group: &Group<'_>| median(&group.memory()).map_or_else(none, bytes);
    let cells = [
        if named { plain(part.name) } else { String::new() },
        size(part.without.variant.memory_bytes),
        part.n().to_string(),
        time(part.full),
        time(part.without),
        part.ratio.map_or_else(none, |ratio| format!("{ratio:.3}")),
        part.interval.map_or_else(none, |interval| format!("{:.3} – {:.3}", interval.low, interval.high)),
        format!("{} → {}", memory(part.full), memory(part.without)),
    ];
    let mut cells: Vec<_> = cells.into_iter().map(|text| (text, Style::new())).collect();
    cells[RATIO].1 = match part.worth() {
        Worth::Gain => AnsiColor::Green.on_default().bold(),
        Worth::Loss => AnsiColor::Red.on_default().bold(),
        Worth::Unknown => Style::new(),
    };
    Row::Cells(cells)
}
