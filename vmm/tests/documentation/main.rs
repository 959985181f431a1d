// SPDX-License-Identifier: Apache-2.0
//! Documentation that repeats a fact is held against the fact's home.
#![expect(clippy::expect_used, reason = "tests may stop at the first surprise")]

mod events;
mod helps;
mod locks;
mod requests;
mod shown;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use clap::CommandFactory;
use flatboot::cli::Cli;
use flatboot::config::{CpusConfig, MemoryConfig, StudyConfig};
use flatboot::devices::held::registers::{self, Register};
use flatboot::layout;
use flatboot_handoff::marks;

const README: &str = include_str!("../../../README.md");
const DESIGN: &str = include_str!("../../../docs/design.md");
const ELASTIC: &str = include_str!("../../../docs/elastic-memory.md");
const TIMELINE: &str = include_str!("../../../docs/boot-timeline.md");

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

/// What the sources below `directory` call the phases of a start.
fn phases(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            phases(&entry, found);
            continue;
        }
        let source = fs::read_to_string(&entry).expect("a source");
        let source = source.split("#[cfg(test)]").next().expect("what is not for tests");
        let called = source.split(".phase(\"").skip(1);
        // What depends on the payload is said in a function of this name.
        let said = source
            .split("fn phase(")
            .skip(1)
            .filter_map(|body| body.split("\n    }").next())
            .flat_map(|body| body.split("=> \"").skip(1));
        found.extend(called.chain(said).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
    }
}

#[test]
fn the_timeline_names_every_phase() {
    let listed = between(TIMELINE, "phases").lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut found = BTreeSet::new();
    phases(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, listed.map(str::to_owned).collect(), "docs/boot-timeline.md lists the right-hand side");
}

#[test]
fn the_memory_devices_registers_are_its_own() {
    let mut table = "| Offset | Bits | Access | Name | Meaning |\n|---|---|---|---|---|\n".to_owned();
    for Register { offset, bits, access, name, meaning } in registers::ALL {
        writeln!(table, "| {offset:#04x} | {bits} | {access} | `{name}` | {meaning} |").unwrap();
    }
    assert_eq!(between(ELASTIC, "registers"), table, "copy the right-hand side into docs/elastic-memory.md:\n{table}");
    let place = format!("{:#x} and\ninterrupt {} ", layout::HELD_MEMORY.start, layout::GSI_HELD_MEMORY);
    assert!(ELASTIC.contains(&place), "{place}");
}

/// Files below `directory` that are open to `unsafe`, tests apart, as paths below the crate's sources.
fn unsafe_modules(directory: &Path, below: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("a name");
        let path = format!("{below}{name}");
        if entry.file_type().expect("a type").is_dir() {
            unsafe_modules(&entry.path(), &format!("{path}/"), found);
        } else if name != "tests.rs" && fs::read_to_string(entry.path()).expect("a source").contains("unsafe_code") {
            found.insert(path);
        }
    }
}

#[test]
fn the_modules_that_are_open_to_unsafe_are_listed() {
    let (_, list) = DESIGN.split_once("`unsafe` is allowed in these modules:").expect("the list");
    let list = list.split("\n\n").next().expect("its end");
    let is_source = |word: &&str| Path::new(word).extension().is_some_and(|extension| extension == "rs");
    let listed = list.split('`').filter(is_source).map(str::to_owned).collect();
    let mut found = BTreeSet::new();
    unsafe_modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut found);
    assert_eq!(found, listed, "docs/design.md lists the right-hand side");
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

/// Where a command stands.
#[derive(Clone, Copy)]
enum Place {
    /// In a block of code: whoever copies it expects that it works.
    Block,
    /// In a sentence, which may leave out what it is not about.
    Sentence,
}

/// Runs `command` where none of its files is: flatboot misses one, or prints, unless it does not understand the command line.
/// Paths from the root are taken from that place, a server gets a VM that is not there, and `check` its help.
fn is_understood(command: &str, place: Place) -> Result<(), String> {
    let command = command.replace(" /", " ./").replace("=/", "=./");
    let directory = tempfile::tempdir().expect("a directory");
    for path in command.split([' ', '=', ',']).filter(|word| word.starts_with("./")) {
        let parent = Path::new(path).parent().expect("a directory");
        fs::create_dir_all(directory.path().join(parent)).expect("a directory for a file");
    }
    let program = env!("CARGO_BIN_EXE_flatboot");
    let script = format!(
        r#"flatboot() {{
            case $1 in
                check) '{program}' "$@" --help ;;
                --help | --version) '{program}' "$@" ;;
                --*) '{program}' "$@" --help && '{program}' run --kernel none "$@" ;;
                *) '{program}' "$@" ;;
            esac
        }}
        {command}"#
    );
    let output = Command::new("/bin/sh").args(["-c", &script]).current_dir(&directory).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    let missing = output.status.code() == Some(1) && said.contains("there is no such file");
    if matches!(place, Place::Sentence) {
        if said.contains("required arguments were not provided: --kernel") {
            return is_understood(&format!("{command} --kernel none"), Place::Block);
        }
        if said.contains("a value is required for") || said.contains("a command is missing") {
            return Ok(());
        }
    }
    if output.status.success() || missing { Ok(()) } else { Err(format!("{}: {said}", output.status)) }
}

#[test]
fn commands_that_documents_show_are_understood() {
    let mut wrong = String::new();
    let mut shown = 0;
    for (document, text) in shown::documents() {
        let blocks = shown::commands(&text, "flatboot").into_iter().map(|command| (command, Place::Block));
        let sentences = shown::mentions(&text, "flatboot").into_iter().map(|command| (command, Place::Sentence));
        for (command, place) in blocks.chain(sentences) {
            shown += 1;
            // A server that a shell puts into the background is tried in the foreground.
            if let Err(said) = is_understood(command.trim_end_matches(" &"), place) {
                writeln!(wrong, "{document}:\n{command}\n{said}").unwrap();
            }
        }
    }
    assert!(shown > 40, "only {shown} commands were found");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Options of flatboot are in the first column of a table whose head is `flatboot`.
#[test]
fn options_side_by_side_are_understood() {
    let text = include_str!("../../../docs/for-users-of-other-vmms.md");
    let (_, table) = text.split_once("\n| flatboot |").expect("a table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(1).expect("a cell"));
    let options: Vec<_> = cells.flat_map(shown::spans).collect();
    assert!(options.len() > 20, "{options:?}");
    for option in options {
        let command = format!("flatboot run {option}");
        is_understood(&command, Place::Sentence).unwrap_or_else(|said| panic!("{command}: {said}"));
    }
}

/// Those of `flatboot --help` and of `flatboot run --help`, which are the same.
#[test]
fn examples_of_the_help_are_understood() {
    let output = Command::new(env!("CARGO_BIN_EXE_flatboot")).arg("--help").output().expect("flatboot");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let (_, examples) = help.split_once("Examples:\n").expect("examples");
    let indented: String = examples.lines().flat_map(|line| ["  ", line, "\n"]).collect();
    let commands = shown::commands(&indented, "flatboot");
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        is_understood(&command, Place::Block).unwrap_or_else(|said| panic!("{command}: {said}"));
    }
}

#[test]
fn help_has_at_most_100_columns() {
    let found = helps::too_long(env!("CARGO_BIN_EXE_flatboot"), &Cli::command(), &[]);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_command_that_is_wrong_is_not_understood() {
    for command in [
        "flatboot run --kernel /vmlinux --memory size=64G",
        "flatboot check",
        "flatboot --api-socket path=/run/vm.sock",
        "flatboot map --memory size=1G > map",
    ] {
        assert_eq!(is_understood(command, Place::Block), Ok(()), "{command}");
    }
    for (command, expected) in [
        ("flatboot run --kernel vmlinux --memory sizes=64G", "--memory sizes=64G"),
        ("flatboot run --memory size=64G", "--kernel"),
        ("flatboot check --kernel", "--kernel"),
        ("flatboot --api-socket socket=x", "--api-socket socket=x"),
        ("flatboot --api-socket path=x --landlock", "--landlock"),
        ("flatboot start", "start"),
    ] {
        let said = is_understood(command, Place::Block).unwrap_err();
        assert!(said.contains(expected), "{command}: {said}");
    }
    assert_eq!(is_understood("flatboot run --memory size=64G", Place::Sentence), Ok(()));
    assert!(is_understood("flatboot run --memory sizes=64G", Place::Sentence).is_err());
}
