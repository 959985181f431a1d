// SPDX-License-Identifier: Apache-2.0
//! What is kept of a boot that failed.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::order::{Order, Seen};
use super::plan::Plan;

/// Writes all that is known to a file in `directory`, named after the seed. A seed that
/// fails once more has another one.
pub(super) fn keep(directory: &Path, plan: &Plan, order: &Order, seen: &Seen, wrong: &[String]) -> io::Result<PathBuf> {
    let steps = &order.steps;
    let text = format!(
        "seed {}: {plan}\n\nwrong:\n{}\n\ncommand: {} {:?} {:?}\nsteps: {steps:?}\n\n--- standard error\n{}\n--- console\n{}\n",
        plan.seed,
        wrong.join("\n"),
        order.program,
        order.process,
        order.vm,
        seen.stderr,
        seen.console
    );
    let (path, mut file) = new_file(directory, plan.seed)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}

/// `SEED.log`, or the first of `SEED-2.log` and so on that is not there.
fn new_file(directory: &Path, seed: u64) -> io::Result<(PathBuf, File)> {
    let mut number = 1;
    loop {
        let again = if number > 1 { format!("-{number}") } else { String::new() };
        let path = directory.join(format!("{seed}{again}.log"));
        match File::create_new(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return Ok((path, made?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_failure_stays() {
        let directory = tempfile::tempdir().unwrap();
        let name = || new_file(directory.path(), 7).unwrap().0.file_name().unwrap().to_owned();
        assert_eq!([name(), name(), name()], ["7.log", "7-2.log", "7-3.log"]);
    }
}
