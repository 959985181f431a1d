// SPDX-License-Identifier: Apache-2.0
//! The table of what guests got done.

use anstyle::{AnsiColor, Style};

use crate::rates::{Rate, rates};
use crate::results::Group;
use crate::sweep::describe;
use crate::terminal::{Align, Column, NONE, Row, Table, plain};

const COLUMNS: &[Column] = &[
    Column { title: "workload", align: Align::Left, expendable: 0 },
    Column { title: "n", align: Align::Right, expendable: 3 },
    Column { title: "median", align: Align::Right, expendable: 1 },
    Column { title: "QEMU", align: Align::Right, expendable: 2 },
    Column { title: "ratio", align: Align::Right, expendable: 0 },
    Column { title: "95 % interval", align: Align::Right, expendable: 0 },
    Column { title: "by round", align: Align::Right, expendable: 4 },
];
const RATIO: usize = 4;

pub(super) const LEGEND: &str = "What the guest got done in a second. ratio: median over that under QEMU; 2 says twice as much. An \
                                 interval that contains 1 shows no difference. by round: median of the ratios within each round.";

/// A row for each workload of each variant; none if guests had nothing to do.
pub(super) fn table(groups: &[Group<'_>]) -> Option<Table<'static>> {
    let mut rows = Vec::new();
    for variant in rates(groups) {
        rows.push(Row::Heading(format!("{}: workloads", plain(&describe(variant.variant)))));
        rows.extend(variant.rates.iter().map(row));
    }
    (!rows.is_empty()).then_some(Table { columns: COLUMNS, rows })
}

fn row(rate: &Rate) -> Row {
    let none = || NONE.to_owned();
    let ratio = |ratio: Option<f64>| ratio.map_or_else(none, |ratio| format!("{ratio:.3}"));
    let cells = [
        rate.workload.name.to_owned(),
        rate.n.to_string(),
        rate.median.map_or_else(none, |median| rate.show(median)),
        rate.yardstick.map_or_else(none, |median| rate.show(median)),
        ratio(rate.ratio),
        rate.interval.map_or_else(none, |interval| format!("{:.3} – {:.3}", interval.low, interval.high)),
        ratio(rate.by_round),
    ];
    let mut cells: Vec<_> = cells.into_iter().map(|text| (text, Style::new())).collect();
    cells[RATIO].1 = match rate.is_more() {
        Some(true) => AnsiColor::Green.on_default().bold(),
        Some(false) => AnsiColor::Red.on_default().bold(),
        None => Style::new(),
    };
    Row::Cells(cells)
}
