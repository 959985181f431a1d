// SPDX-License-Identifier: Apache-2.0
//! Tables in a terminal. A column that finds no room is left out whole: wrapped numbers cannot be compared.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};

use super::screen::{BOLD, DIM, faint};
use crate::table::{Align, Table, Tone};

/// Blanks before each column.
const GAP: usize = 2;

/// The table in no more than `width` characters, if columns can be left out for it; `legend` and which those are below it.
pub(crate) fn draw(table: &Table, legend: &str, width: Option<usize>) -> String {
    let columns = table.columns;
    let rows = || table.blocks.iter().flat_map(|block| &block.rows);
    let width_of = |(index, title): (usize, &str)| {
        rows().map(|row| length(&row[index].text)).chain([length(title)]).max().unwrap_or(0)
    };
    let widths: Vec<_> = columns.iter().map(|column| column.title).enumerate().map(width_of).collect();
    let total = |shown: &[usize]| shown.iter().map(|index| GAP + widths[*index]).sum::<usize>();
    let mut shown: Vec<_> = (0..columns.len()).filter(|index| !columns[*index].on_page).collect();
    let mut left_out = Vec::new();
    while width.is_some_and(|width| total(&shown) > width) {
        let expendable = shown.iter().copied().filter(|index| columns[*index].expendable > 0);
        let Some(index) = expendable.max_by_key(|index| columns[*index].expendable) else { break };
        shown.retain(|other| *other != index);
        left_out.push(columns[index].title);
    }
    let line = |cell: &dyn Fn(usize) -> (String, Style)| {
        let cells = shown.iter().map(|index| {
            let (text, style) = cell(*index);
            let room = widths[*index] - length(&text);
            let (before, after) = if columns[*index].align == Align::Right { (GAP + room, 0) } else { (GAP, room) };
            format!("{:before$}{style}{text}{style:#}{:after$}", "", "")
        });
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    let mut out = "\n".to_owned() + &line(&|index| (columns[index].title.to_owned(), DIM));
    let _ = writeln!(out, "{:GAP$}{DIM}{:─<2$}{DIM:#}", "", "", total(&shown) - GAP);
    for (number, block) in table.blocks.iter().enumerate() {
        let before = if number == 0 { "" } else { "\n" };
        let _ = writeln!(out, "{before}{:GAP$}{BOLD}{}{BOLD:#}", "", block.title);
        for (at, row) in block.rows.iter().enumerate() {
            out += &line(&|index| {
                let (cell, above) = (&row[index], at.checked_sub(1).map(|above| &block.rows[above][index].text));
                let said = columns[index].once && above == Some(&cell.text);
                if said { Default::default() } else { (cell.text.clone(), style(cell.tone)) }
            });
        }
    }
    out.push('\n');
    out += &faint(legend, width);
    if !left_out.is_empty() {
        out += &faint(&format!("Left out for want of room: {}.", left_out.join(", ")), width);
    }
    out
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Good => AnsiColor::Green.on_default().bold(),
        Tone::Bad => AnsiColor::Red.on_default().bold(),
        Tone::Doubtful => AnsiColor::Yellow.on_default(),
        Tone::Nothing => DIM,
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Block, Cell, Column, left, right};

    const COLUMNS: &[Column] = &[left("name").once(), right("n", 1), right("time", 2), left("word")];

    fn drawn(width: Option<usize>) -> String {
        let row = |texts: [&str; 4]| texts.map(Cell::from).into_iter().collect();
        let block = |title: &str, rows| Block { title: title.to_owned(), rows };
        let one = vec![row(["a", "10", "1.000 s", "yes"]), row(["a", "9", "12.000 s", ""])];
        let blocks = vec![block("one", one), block("two", vec![row(["long name", "", "–", "no"])])];
        let text = draw(&Table { columns: COLUMNS, blocks, legend: "" }, "All.", width);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn cells_stand_below_their_titles() {
        let expected = "
  name        n      time  word
  ─────────────────────────────
  one
  a          10   1.000 s  yes
              9  12.000 s

  two
  long name             –  no

  All.
";
        assert_eq!(drawn(None), expected);
        assert_eq!(drawn(Some(31)), expected);
    }

    #[test]
    fn columns_without_room_go_in_their_order() {
        let text = drawn(Some(30));
        assert!(text.lines().all(|line| line.chars().count() <= 30) && !text.contains("1.000"), "{text}");
        let told = |text: &str| text.replace("\n  ", " ").contains("Left out for want of room: time");
        assert!(told(&text), "{text}");
        let text = drawn(Some(1));
        assert!(text.contains("long name  no\n") && text.contains("Left out for want of room: time, n."), "{text}");
    }
}
