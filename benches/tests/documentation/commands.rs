// SPDX-License-Identifier: Apache-2.0
//! Commands of flatboot-bench, make and scripts that documents show. Those of flatboot are held against it in
//! vmm/tests/documentation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use clap::Parser;
use clap::error::ErrorKind;

use super::cli::Cli;
use super::shown;

/// The words of `command`, as a shell has them.
fn words(command: &str) -> Vec<String> {
    let program = command.split(' ').next().unwrap_or_default();
    // A function's name has no dash.
    let script = format!("show() {{ printf '%s\\0' \"$@\"; }}\nshow {command}");
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("/bin/sh").args(["-c", &script]).current_dir(&directory).output().expect("a shell");
    assert!(output.status.success(), "{program}: {command}: {}", String::from_utf8_lossy(&output.stderr));
    let words = String::from_utf8(output.stdout).expect("UTF-8");
    words.split_terminator('\0').map(str::to_owned).collect()
}

/// Parses a command of flatboot-bench, without running it. A sentence may leave out what it is not about.
fn bench_understands(command: &str, is_sentence: bool) -> Result<(), String> {
    let Err(error) = Cli::try_parse_from(words(command)) else { return Ok(()) };
    let left_out = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::InvalidValue,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let names_a_value = error.kind() == ErrorKind::InvalidValue && !error.to_string().contains("a value is required");
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
        kind if is_sentence && left_out.contains(&kind) && !names_a_value => Ok(()),
        _ => Err(error.to_string()),
    }
}

/// Whether the Makefile, `makefile`, has the targets and uses the variables of `command`.
fn make_understands(makefile: &str, command: &str) -> Result<(), String> {
    for word in words(command).iter().skip(1) {
        let known = match word.split_once('=') {
            Some((variable, _)) => makefile.contains(&format!("$({variable})")),
            None => makefile.lines().any(|line| line.starts_with(&format!("{word}:"))),
        };
        if !known {
            return Err(format!("the Makefile does not have {word}"));
        }
    }
    Ok(())
}

/// Whether the first word of `command`, a script's path, is in the tree and can be executed.
fn is_a_script(command: &str) -> Result<(), String> {
    let script = command.split(' ').next().unwrap_or_default();
    let found = fs::metadata(shown::root().join(script)).map_err(|error| format!("{script}: {error}"))?;
    if found.permissions().mode() & 0o111 == 0 { Err(format!("{script} cannot be executed")) } else { Ok(()) }
}

/// Every command of `program` that a document shows, with the document and whether it stands in a sentence.
fn all(program: &str) -> Vec<(String, String, bool)> {
    let mut all = Vec::new();
    for (document, text) in shown::documents() {
        let blocks = shown::commands(&text, program).into_iter().map(|command| (command, false));
        let sentences = shown::mentions(&text, program).into_iter().map(|command| (command, true));
        all.extend(blocks.chain(sentences).map(|(command, is_sentence)| (document.clone(), command, is_sentence)));
    }
    all
}

/// Fails with each of `shown` that is not understood, or if there are not even `least` of them.
fn hold<'a>(shown: impl IntoIterator<Item = (&'a str, &'a str, Result<(), String>)>, least: usize) {
    let (mut found, mut wrong) = (0, String::new());
    for (document, command, understood) in shown {
        found += 1;
        if let Err(said) = understood {
            wrong.extend([document, ": ", command, "\n", &said, "\n"]);
        }
    }
    assert!(found >= least, "only {found} commands were found");
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn commands_of_flatboot_bench_are_understood() {
    let all = all("flatboot-bench");
    let understood = |command: &str, is_sentence| bench_understands(command, is_sentence);
    hold(all.iter().map(|(document, command, sentence)| (&**document, &**command, understood(command, *sentence))), 40);
}

/// Programs that make calls run in several directories: it makes the path absolute.
#[test]
fn a_relative_cache_is_one_in_the_tree() {
    let root = fs::canonicalize(shown::root()).expect("the tree");
    let mut make = Command::new("make");
    make.args(["--silent", "help"]).current_dir(&root).env("FLATBOOT_CACHE", "here");
    for inherited in ["MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS"] {
        make.env_remove(inherited);
    }
    let help = String::from_utf8(make.output().expect("make").stdout).expect("UTF-8");
    assert!(help.contains(&format!("cached in {}/here.\n", root.display())), "{help}");
}

#[test]
fn targets_of_make_are_there() {
    let makefile = fs::read_to_string(shown::root().join("Makefile")).expect("the Makefile");
    let foreign = ["make tinyconfig", "make mrproper"];
    let all: Vec<_> = all("make").into_iter().filter(|(_, command, _)| !foreign.contains(&command.as_str())).collect();
    hold(all.iter().map(|(document, command, _)| (&**document, &**command, make_understands(&makefile, command))), 40);
}

#[test]
fn scripts_are_there() {
    let directories = ["benches/", "firmware/", "guest-kernel/", "vmm/"];
    let documents = shown::documents();
    let spans = documents.iter().flat_map(|(document, text)| {
        let lines = shown::blocks(text).join("\n");
        let lines = lines.lines().map(str::to_owned).collect::<Vec<_>>();
        shown::spans(text).into_iter().chain(lines).map(move |span| (document, span))
    });
    let scripts: Vec<_> = spans
        .filter(|(_, span)| directories.iter().any(|directory| span.starts_with(directory)))
        .filter(|(_, span)| {
            span.split(' ').next().is_some_and(|word| Path::new(word).extension().is_some_and(|end| end == "sh"))
        })
        .collect();
    hold(scripts.iter().map(|(document, span)| (document.as_str(), span.as_str(), is_a_script(span))), 10);
}

#[test]
fn a_command_that_is_wrong_is_found() {
    assert_eq!(bench_understands("flatboot-bench run --memory 1G,4G --out 'a b'    # two sizes", false), Ok(()));
    assert_eq!(bench_understands("flatboot-bench show", true), Ok(()));
    for (command, is_sentence) in [
        ("flatboot-bench run --memory 1G --vms flatboot", false),
        ("flatboot-bench run --mode quick", false),
        ("flatboot-bench run --mode quick", true),
        ("flatboot-bench show", false),
        ("flatboot-bench measure", true),
    ] {
        assert!(bench_understands(command, is_sentence).is_err(), "{command}");
    }
    let makefile = "boot: build ## boot\n\techo $(MEMORY)\n";
    assert_eq!(make_understands(makefile, "make boot MEMORY=1G    # boots"), Ok(()));
    assert!(make_understands(makefile, "make boots").is_err());
    assert!(make_understands(makefile, "make boot SIZE=1G").is_err());
    assert_eq!(is_a_script("guest-kernel/build.sh guest"), Ok(()));
    assert!(is_a_script("guest-kernel/builds.sh guest").is_err());
    assert!(is_a_script("guest-kernel/BASE").is_err());
}
