// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats a fact is held against the fact's home.
#![expect(clippy::expect_used, reason = "tests may stop at the first surprise")]

use std::fmt::Write;

use flatboot_handoff::marks;

const TIMELINE: &str = include_str!("../../docs/boot-timeline.md");

/// The part of `document` between the comments `name: begin` and `name: end`.
fn between<'a>(document: &'a str, name: &str) -> &'a str {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let from = document.find(&begin).expect("begin") + begin.len();
    let to = document.find(&end).expect("end");
    &document[from..to]
}

#[test]
fn the_table_of_marks_is_the_contracts() {
    let mut table = "| code | mark | what has happened |\n|---|---|---|\n".to_owned();
    for mark in &marks::ALL {
        writeln!(table, "| {:#04x} | `{}` | {} |", mark.code, mark.name, mark.meaning).unwrap();
    }
    assert_eq!(between(TIMELINE, "marks"), table, "copy the right-hand side into docs/boot-timeline.md:\n{table}");
}
