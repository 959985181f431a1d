// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats something is held against its home.

use std::process::Command;

use flatboot_bench::spec::Section;
use flatboot_bench::sweep::{MODES, SWITCHES, Switch};

const SPECIFICATION: &str = include_str!("../../docs/SPECIFICATION.md");
const MEASURING: &str = include_str!("../../docs/measuring.md");

/// `table` stands between the comments of `name`.
fn holds(document: &str, path: &str, name: &str, table: &str) {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let from = document.find(&begin).map(|at| at + begin.len());
    let shown = from.and_then(|from| document[from..].split(&end).next()).unwrap_or_default();
    assert_eq!(shown, table, "copy this between the comments of {name} in {path}:\n{table}");
}

#[test]
fn the_specification_lists_every_promise() {
    for section in Section::ALL {
        holds(SPECIFICATION, "docs/SPECIFICATION.md", section.name(), &section.table());
    }
}

#[test]
fn measuring_lists_every_part() {
    holds(MEASURING, "docs/measuring.md", "parts", &Switch::table());
}

#[test]
fn help_names_every_mode_and_every_part() {
    let output = Command::new(env!("CARGO_BIN_EXE_flatboot-bench")).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let words: Vec<_> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    for name in MODES.iter().map(|mode| mode.name).chain(SWITCHES.iter().map(|switch| switch.name)) {
        assert!(words.contains(&name), "{name} is not in:\n{help}");
    }
}
