// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats something is held against its home.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../src/cli.rs"]
#[expect(dead_code, reason = "its commands are parsed here, and not run")]
mod cli;
mod commands;
#[path = "../../../vmm/tests/documentation/helps.rs"]
mod helps;
mod links;
#[path = "../../../vmm/tests/documentation/shown.rs"]
mod shown;

use std::fs;
use std::process::Command;

use clap::CommandFactory;
use flatboot_bench::modes::MODES;
use flatboot_bench::spec::{PROMISES, Proof, SECTIONS, rows};
use flatboot_bench::sweep::{Place, SWITCHES, Switch};
use flatboot_bench::work::Workload;

const MEASURING: &str = include_str!("../../../docs/measuring.md");

/// `table` stands between the comments of `name`.
fn holds(document: &str, path: &str, name: &str, table: &str) {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let from = document.find(&begin).map(|at| at + begin.len());
    let shown = from.and_then(|from| document[from..].split(&end).next()).unwrap_or_default();
    assert_eq!(shown, table, "copy this between the comments of {name} in {path}:\n{table}");
}

#[test]
fn the_specification_lists_every_promise() {
    let rows: Vec<_> = SECTIONS.into_iter().flat_map(rows).collect();
    let listed: Vec<_> = rows.iter().map(|[name, _, command]| (*name, (*command).to_owned())).collect();
    let proved: Vec<_> = PROMISES.iter().map(|promise| (promise.name, promise.command())).collect();
    assert_eq!(listed, proved, "docs/SPECIFICATION.md, and benches/src/spec/promises.rs");
    for ([name, text, _], promise) in rows.iter().zip(PROMISES) {
        let tested = matches!(promise.proof, Proof::Script(_) | Proof::Tests(_) | Proof::Timed(_));
        let bound = promise.bound();
        // "at most 1.1" is not told by "at most 1.15".
        let ends = |at: usize| text[at + bound.len()..].is_empty() || text[at + bound.len()..].starts_with(' ');
        assert!(tested || text.match_indices(&bound).any(|(at, _)| ends(at)), "{name}: {bound} is not in: {text}");
    }
}

#[test]
fn measuring_lists_every_part() {
    let part =
        MEASURING.split("<!-- parts: begin -->").nth(1).and_then(|rest| rest.split("<!-- parts: end -->").next());
    let rows: Vec<_> = part.unwrap_or_default().lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), SWITCHES.len());
    for (row, Switch { name, place, word }) in rows.iter().zip(SWITCHES) {
        let how =
            if *place == Place::Cmdline { format!("kernel: `{word}`") } else { format!("flatboot: `--study {word}`") };
        assert!(row.starts_with(&format!("| `{name}` | ")) && row.ends_with(&format!(" | {how} |")), "{row}");
    }
}

#[test]
fn measuring_lists_every_workload() {
    holds(MEASURING, "docs/measuring.md", "work", &Workload::table());
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

#[test]
fn help_has_at_most_100_columns() {
    let found = helps::too_long(env!("CARGO_BIN_EXE_flatboot-bench"), &cli::Cli::command(), &[]);
    assert!(found.is_empty(), "{found:#?}");
}

/// Rows of tables cannot be wrapped, nor what a program has drawn; all else can.
#[test]
fn lines_have_at_most_100_columns() {
    let changelog = fs::read_to_string(shown::root().join("CHANGELOG.md")).unwrap();
    for (path, text) in shown::documents().into_iter().chain([("CHANGELOG.md".to_owned(), changelog)]) {
        for (number, line) in text.lines().enumerate() {
            let fits = line.starts_with('|') || line.contains('█') || line.chars().count() <= 100;
            assert!(fits, "{path}:{}: {} columns", number + 1, line.chars().count());
        }
    }
}

/// Raw samples, that every clone has: compressed, and not more than are needed.
#[test]
fn results_have_at_most_200_kib() {
    let entries = fs::read_dir(shown::root().join("benches/results")).unwrap();
    let sizes: Vec<_> =
        entries.map(|entry| entry.unwrap()).map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).collect();
    assert!(sizes.len() > 10, "{sizes:?}");
    assert!(sizes.iter().all(|(_, bytes)| *bytes <= 200 << 10), "{sizes:?}");
}
