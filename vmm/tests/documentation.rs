// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats a fact is held against the fact's home.
#![expect(clippy::expect_used, reason = "tests may stop at the first surprise")]

use std::fmt::Write;

use flatboot::config::{CpusConfig, MemoryConfig, StudyConfig};
use flatboot_handoff::marks;

const README: &str = include_str!("../../README.md");
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

/// The keys of an option, from what a wrong one is answered with.
fn keys(refusal: &str) -> Vec<String> {
    let (_, list) = refusal.split_once("must be one of ").expect("a list of keys");
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_readme_has_every_key() {
    let memory = MemoryConfig::parse("no=1", &[]).expect_err("no such key").to_string();
    let cpus = CpusConfig::parse("no=1").expect_err("no such key").to_string();
    let rows: Vec<_> = README.lines().filter_map(|line| line.strip_prefix("| `--")?.split_once('`')).collect();
    let told = |option: &str, refusal: &str, first: &str| {
        let keys = keys(refusal).into_iter().filter(|key| key != first);
        keys.map(|key| format!("{option} {key}")).collect::<Vec<_>>()
    };
    let study = StudyConfig::parse(&["no=1".to_owned()]).expect_err("no such key").to_string();
    let expected = [told("memory", &memory, "size"), told("cpus", &cpus, "boot"), told("study", &study, "")].concat();
    let listed: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed, expected);
}
