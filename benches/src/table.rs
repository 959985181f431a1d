// SPDX-License-Identifier: Apache-2.0
//! A table of numbers before it is drawn, in a terminal or on a page.

use std::cmp::Ordering;

use crate::stats::Interval;

/// What stands where there is no value.
pub(crate) const NONE: &str = "–";

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: &'static [Column],
    pub(crate) blocks: Vec<Block>,
    /// What the columns mean.
    pub(crate) legend: &'static str,
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) align: Align,
    /// Where a terminal has no room the column with the highest goes first; one with 0 stays.
    pub(crate) expendable: u8,
    /// A terminal has no room for it, ever.
    pub(crate) on_page: bool,
    /// Said once in a terminal where rows below each other have the same.
    pub(crate) once: bool,
}

/// On which side a column's cells are flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows that have something in common: the title.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) title: String,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A text.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// What a cell says of what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Doubtful,
    Nothing,
}

/// A column of text.
pub(crate) const fn left(title: &'static str) -> Column {
    Column { title, align: Align::Left, expendable: 0, on_page: false, once: false }
}

/// A column of numbers.
pub(crate) const fn right(title: &'static str, expendable: u8) -> Column {
    Column { title, align: Align::Right, expendable, on_page: false, once: false }
}

impl Column {
    /// The same, said once.
    pub(crate) const fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// The same, for pages only.
    pub(crate) const fn on_page(self) -> Self {
        Self { on_page: true, ..self }
    }
}

impl Cell {
    pub(crate) fn new(text: String, tone: Tone) -> Self {
        Self { text, tone }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text.to_string(), Tone::Plain)
    }
}

/// What `show` makes of a value, or that there is none.
pub(crate) fn or_none<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> Cell {
    value.map_or(NONE.to_owned(), show).into()
}

/// A ratio, and whether its interval shows that it is above 1 or below.
pub(crate) fn ratio(ratio: Option<f64>, interval: Option<Interval>) -> Cell {
    let tone = match interval.and_then(Interval::differs) {
        Some(Ordering::Greater) => Tone::Good,
        Some(_) => Tone::Bad,
        None => Tone::Plain,
    };
    Cell { tone, ..or_none(ratio, |ratio| format!("{ratio:.3}")) }
}
