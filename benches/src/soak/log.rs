// SPDX-License-Identifier: Apache-2.0
//! What is kept of a boot that failed.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::order::{Order, Seen};
use super::plan::Plan;

/// Writes all that is known to a file in `directory`, named after the seed.
pub(super) fn keep(directory: &Path, plan: &Plan, order: &Order, seen: &Seen, wrong: &[String]) -> io::Result<PathBuf> {
    let path = directory.join(format!("{}.log", plan.seed));
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
    fs::write(&path, text)?;
    Ok(path)
}
