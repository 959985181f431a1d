// SPDX-License-Identifier: Apache-2.0
//! Promises that a script of the source tree keeps: exit code 0 holds, 1 is missed, anything else did not come to a verdict.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use super::outcome::{Outcome, Status};
use crate::artifact;

/// Lines of what it said that are repeated.
const SHOWN: usize = 20;

/// Runs `script`, which may have arguments, in the source tree. All it says goes to `log`.
pub(super) fn run(script: &str, log: &Path) -> Outcome {
    match artifact::source_tree() {
        Some(tree) => run_in(&tree, script, log).unwrap_or_else(Outcome::not_run),
        None => Outcome::cannot_here("no source tree around this directory".to_owned()),
    }
}

fn run_in(tree: &Path, script: &str, log: &Path) -> Result<Outcome, String> {
    let in_log = |error| format!("{}: {error}", log.display());
    let file = File::create(log).map_err(in_log)?;
    let also = file.try_clone().map_err(in_log)?;
    let mut words = script.split(' ');
    let mut command = Command::new(tree.join(words.next().unwrap_or_default()));
    command.args(words).current_dir(tree).stdin(Stdio::null()).stdout(file).stderr(also);
    let status = command.status().map_err(|error| format!("{script}: {error}"))?;
    let said = fs::read(log).map_err(in_log)?;
    Ok(judge(script, status.code(), &String::from_utf8_lossy(&said), log))
}

fn judge(script: &str, code: Option<i32>, said: &str, log: &Path) -> Outcome {
    let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.last().copied().unwrap_or_default();
    let status = match code {
        Some(0) => Status::Held,
        Some(1) => Status::Missed,
        Some(code) => return Outcome::not_run(format!("{script}: exit code {code}: {last}")),
        None => return Outcome::not_run(format!("{script}: ended by a signal")),
    };
    let mut details: Vec<_> =
        lines[lines.len().saturating_sub(SHOWN)..].iter().map(|line| (*line).to_owned()).collect();
    details.push(format!("all that was said: {}", log.display()));
    Outcome { status, measured: last.to_owned(), details }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_exit_code_is_the_verdict_and_the_last_line_what_was_measured() {
        let tree = tempfile::tempdir().unwrap();
        let script = tree.path().join("script");
        fs::write(&script, "#!/bin/sh\necho begun >&2\necho \"18 functions are the same\"\nexit $(cat code)\n")
            .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let log = tree.path().join("log");
        let outcome = |code: &str| {
            fs::write(tree.path().join("code"), code).unwrap();
            run_in(tree.path(), "script", &log).unwrap()
        };
        let held = outcome("0");
        assert_eq!((held.status, held.measured.as_str()), (Status::Held, "18 functions are the same"));
        assert_eq!(held.details[0], "begun");
        assert_eq!(outcome("1").status, Status::Missed);
        let why = "script: exit code 3: 18 functions are the same".to_owned();
        assert_eq!(outcome("3").status, Status::NotRun(why));
        assert!(run_in(tree.path(), "nowhere", &log).is_err());
    }
}
