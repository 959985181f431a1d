// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats a fact is held against the fact's home.
#![expect(clippy::expect_used, reason = "tests may stop at the first surprise")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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

/// The repository, and every document of it that shows commands.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let readmes = ["README.md", "firmware/README.md", "guest-kernel/README.md"].map(|name| root.join(name));
    docs.chain(readmes).filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The commands of flatboot in the blocks of code of `text`, with the lines that continue them. Servers are left out.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut fenced = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        fenced ^= line.starts_with("```");
        let code = if fenced { Some(line) } else { line.strip_prefix("    ") };
        let is_command = |code: &&str| {
            let verb = code.strip_prefix("flatboot ").and_then(|rest| rest.split(' ').next());
            verb.is_some_and(|verb| ["run", "config", "map", "check"].contains(&verb)) && !code.contains('…')
        };
        let Some(code) = code.filter(is_command) else { continue };
        let mut command = code.to_owned();
        while command.ends_with('\\') {
            command.push('\n');
            command.push_str(lines.next().unwrap_or_default().trim_start());
        }
        commands.push(command);
    }
    commands
}

/// Runs `command` where none of its files is: flatboot misses one, or prints, unless it does not understand the command line.
fn is_understood(command: &str) -> Result<(), String> {
    let program = env!("CARGO_BIN_EXE_flatboot");
    let script = format!("flatboot() {{ [ \"$1\" = check ] && set -- check --help; '{program}' \"$@\"; }}\n{command}");
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("/bin/sh").args(["-c", &script]).current_dir(&directory).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    let missing = output.status.code() == Some(1) && said.contains("there is no such file");
    if output.status.success() || missing { Ok(()) } else { Err(format!("{}: {said}", output.status)) }
}

#[test]
fn commands_that_documents_show_are_understood() {
    let mut wrong = String::new();
    let mut shown = 0;
    for path in documents() {
        for command in commands(&fs::read_to_string(&path).expect("a document")) {
            shown += 1;
            if let Err(said) = is_understood(&command) {
                writeln!(wrong, "{}:\n{command}\n{said}", path.display()).unwrap();
            }
        }
    }
    assert!(shown > 10, "only {shown} commands were found");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_command_that_is_wrong_is_not_understood() {
    assert!(is_understood("flatboot run --kernel vmlinux --memory size=64G").is_ok());
    let said = is_understood("flatboot run --kernel vmlinux --memory sizes=64G").unwrap_err();
    assert!(said.contains("--memory sizes=64G"), "{said}");
    assert_eq!(
        commands("    flatboot run \\\n        b\n\nflatboot map\n```sh\nflatboot check\n```\n"),
        ["flatboot run \\\nb", "flatboot check"]
    );
}
