// SPDX-License-Identifier: Apache-2.0
//! What `--help` and `-h` print on a wide terminal. benches/tests/documentation reads it by this file, too.

use std::process::{Command, Stdio};

/// Columns that documents have at most, too.
const MOST: usize = 100;

/// The lines that are longer, in the help of `program` and of all that is below `command`, by the words that come before.
pub(crate) fn too_long(program: &str, command: &clap::Command, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for flag in ["--help", "-h"] {
        let mut asked = Command::new(program);
        let output =
            asked.args(words).arg(flag).env("COLUMNS", "300").stdin(Stdio::null()).output().expect("the program");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success() && help.contains("Usage:"), "{words:?} {flag}: {help}");
        found.extend(help.lines().filter(|line| line.chars().count() > MOST).map(|line| format!("{words:?}: {line}")));
    }
    for below in command.get_subcommands() {
        found.extend(too_long(program, below, &[words, &[below.get_name()]].concat()));
    }
    found
}
