// SPDX-License-Identifier: Apache-2.0
//! `flatboot-bench report`: what it writes, and what bad input gets. No browser needed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use flatboot_bench::results::{Results, VERSION, save};
use libtest_mimic::Failed;

use super::fake;

type Body = fn() -> Result<(), Failed>;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("verb::draws_into_a_file_of_modest_size", draws_into_a_file_of_modest_size),
    ("verb::bad_input_is_one_line_and_no_file", bad_input_is_one_line_and_no_file),
];

/// Fails with `what` unless `holds`.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

fn run(directory: &Path, arguments: &[&str]) -> Result<Output, Failed> {
    let program = env!("CARGO_BIN_EXE_flatboot-bench");
    Ok(Command::new(program).current_dir(directory).arg("report").args(arguments).output()?)
}

fn draws_into_a_file_of_modest_size() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let results = fake::sweep(&[2], 10);
    let marks: Vec<_> = results.boots.iter().filter_map(|boot| Some(boot.sample()?.marks.len())).collect();
    require(results.boots.len() == 220 && marks.contains(&25), || "the made-up results are of another size".into())?;
    save(&results, &directory.path().join("results.json"))?;

    let done = run(directory.path(), &["results.json", "-o", "page.html"])?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    require(done.status.success() && said.starts_with("page.html: "), || format!("{done:?}"))?;
    let page = fs::read_to_string(directory.path().join("page.html"))?;
    require(page.len() < 1_500_000, || format!("220 boots make a page of {} bytes", page.len()))?;
    // Nothing to load: there is no address in it at all.
    for forbidden in ["://", "src=", "href=", "@import", "url("] {
        require(!page.contains(forbidden), || format!("the page has {forbidden:?}"))?;
    }
    require(run(directory.path(), &["results.json", "-o", "page.html"])?.status.success(), || "not again".into())
}

fn bad_input_is_one_line_and_no_file() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str, content: &str| fs::write(directory.path().join(name), content);
    let good: Results = fake::sweep(&[2], 1);
    save(&good, &directory.path().join("good.json"))?;
    let text = fs::read_to_string(directory.path().join("good.json"))?;
    file("short.json", &text[..text.len() / 2])?;
    file("newer.json", &text.replacen(&format!("\"version\": {VERSION}"), "\"version\": 999", 1))?;
    file("other.json", "[1, 2]")?;
    let before = listing(directory.path())?;

    let cases: [(&[&str], &str); 7] = [
        (&["none.json"], "none.json: cannot be read: No such file"),
        (&["good.json", "short.json"], "short.json: cut short"),
        (&["newer.json"], "newer.json: version 999"),
        (&["other.json"], "other.json: not a results file"),
        (&["good.json", "-o", "good.json"], "good.json: is there and is no report"),
        (&["good.json", "-o", "."], ".: is there and is no report"),
        (&[], "<FILE>"),
    ];
    for (arguments, words) in cases {
        let done = run(directory.path(), arguments)?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let one_line = arguments.is_empty() || said.lines().count() == 1;
        let as_expected = done.status.code() == Some(2) && one_line && said.contains(words) && done.stdout.is_empty();
        require(as_expected, || format!("{arguments:?}: expected {words:?}, exit code 2: {done:?}"))?;
        require(listing(directory.path())? == before, || format!("{arguments:?} left something"))?;
    }
    let unwritable = run(directory.path(), &["good.json", "-o", "none/page.html"])?;
    require(unwritable.status.code() == Some(1), || format!("{unwritable:?}"))?;
    require(fs::read_to_string(directory.path().join("good.json"))? == text, || "the results changed".into())
}

fn listing(directory: &Path) -> Result<Vec<String>, Failed> {
    let names: Result<Vec<_>, _> = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name())).collect();
    let mut names: Vec<_> = names?.into_iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
