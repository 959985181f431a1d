// SPDX-License-Identifier: Apache-2.0
//! Tables of numbers under headings. A column that finds no room is left out whole: wrapped numbers cannot be compared.

use std::fmt::Write;

use anstyle::Style;

use super::screen::{BOLD, DIM};

/// What stands where there is no value.
pub(crate) const NONE: &str = "–";

const INDENT: usize = 2;
const GAP: usize = 2;

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) align: Align,
    /// Where there is no room the column with the highest goes first; one with 0 stays.
    pub(crate) expendable: u8,
}

/// On which side a column's cells are flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// One line.
#[derive(Debug)]
pub(crate) enum Row {
    /// What the rows below have in common.
    Heading(String),
    /// A text for each column, and its style.
    Cells(Vec<(String, Style)>),
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(crate) columns: &'a [Column],
    pub(crate) rows: Vec<Row>,
}

impl Table<'_> {
    /// The lines in no more than `width` characters, if columns can be left out for it, and the titles of those left out.
    pub(crate) fn render(&self, width: Option<usize>) -> (String, Vec<&'static str>) {
        let widths: Vec<usize> = (0..self.columns.len()).map(|index| self.width_of(index)).collect();
        let total = |shown: &[usize]| {
            INDENT + shown.iter().map(|&index| widths[index]).sum::<usize>() + GAP * shown.len().saturating_sub(1)
        };
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let mut left_out = Vec::new();
        while width.is_some_and(|width| total(&shown) > width) {
            let expendable = |index: &usize| self.columns[*index].expendable;
            let Some(index) = shown.iter().copied().filter(|index| expendable(index) > 0).max_by_key(expendable) else {
                break;
            };
            shown.retain(|&other| other != index);
            left_out.push(self.columns[index].title);
        }
        (self.lines(&shown, &widths, total(&shown) - INDENT), left_out)
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => cells.get(column).map(|(text, _)| length(text)),
            Row::Heading(_) => None,
        });
        cells.chain([length(self.columns[column].title)]).max().unwrap_or(0)
    }

    fn lines(&self, shown: &[usize], widths: &[usize], rule: usize) -> String {
        let line = |cell: &dyn Fn(usize) -> (String, Style)| {
            let mut line = String::new();
            let mut blank = INDENT;
            for &index in shown {
                let (text, style) = cell(index);
                let room = widths[index] - length(&text);
                let (before, after) = if self.columns[index].align == Align::Right { (room, 0) } else { (0, room) };
                if !text.is_empty() {
                    let _ = write!(line, "{:1$}{style}{text}{style:#}", "", blank + before);
                    blank = 0;
                }
                blank += if text.is_empty() { room } else { after } + GAP;
            }
            line + "\n"
        };
        let mut out = line(&|index| (self.columns[index].title.to_owned(), DIM));
        let _ = writeln!(out, "{:INDENT$}{DIM}{:─<rule$}{DIM:#}", "", "");
        for (index, row) in self.rows.iter().enumerate() {
            match row {
                Row::Heading(text) => {
                    let before = if index == 0 { "" } else { "\n" };
                    let _ = writeln!(out, "{before}{:INDENT$}{BOLD}{text}{BOLD:#}", "");
                }
                Row::Cells(cells) => out += &line(&|index| cells.get(index).cloned().unwrap_or_default()),
            }
        }
        out
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { title: "name", align: Align::Left, expendable: 0 },
        Column { title: "n", align: Align::Right, expendable: 1 },
        Column { title: "time", align: Align::Right, expendable: 2 },
        Column { title: "word", align: Align::Left, expendable: 0 },
    ];

    fn drawn(width: Option<usize>) -> (String, Vec<&'static str>) {
        let cells = |texts: [&str; 4]| Row::Cells(texts.map(|text| (text.to_owned(), Style::new())).to_vec());
        let rows = vec![
            Row::Heading("one".to_owned()),
            cells(["a", "10", "1.000 s", "yes"]),
            cells(["", "9", "12.000 s", ""]),
            Row::Heading("two".to_owned()),
            cells(["long name", "", "–", "no"]),
        ];
        let (text, left_out) = Table { columns: COLUMNS, rows }.render(width);
        (anstream::adapter::strip_str(&text).to_string(), left_out)
    }

    #[test]
    fn cells_stand_below_their_titles() {
        let expected = "  name        n      time  word\n  \
                        ─────────────────────────────\n  \
                        one\n  \
                        a          10   1.000 s  yes\n              \
                        9  12.000 s\n\n  \
                        two\n  \
                        long name             –  no\n";
        assert_eq!(drawn(None), (expected.to_owned(), vec![]));
        assert_eq!(drawn(Some(31)).0, expected);
    }

    #[test]
    fn columns_without_room_go_in_their_order() {
        let (text, left_out) = drawn(Some(30));
        assert_eq!(left_out, ["time"]);
        assert!(text.lines().all(|line| line.chars().count() <= 30) && !text.contains("1.000"), "{text}");
        let (text, left_out) = drawn(Some(1));
        assert_eq!(left_out, ["time", "n"]);
        assert!(text.contains("long name  no\n"), "{text}");
    }
}
