// SPDX-License-Identifier: Apache-2.0
//! Files that flatboot is to write: one that cannot be written is refused, the other one stays as it was.

use crate::host::Needs;
use crate::refusal::{ERROR, Row};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (option, value) in [("--serial", "file="), ("--timeline", "")] {
        let row = |name: &str, fault: &str| {
            let arguments = format!("run {option} {value}@/{name}");
            Row::new(&arguments, &arguments, ERROR, &format!("{option} @/{name}: {fault}"))
        };
        let below = "cannot be created: …: must be in a directory that exists and is writable";
        rows.extend([
            row("no/file", below),
            row("disk/file", below),
            row("directory", "is a directory: must be a regular file, a character device or a pipe"),
            row("pipe", "no one reads from this pipe: must have a reader"),
            row("locked/file", below).needs(Needs::Unprivileged),
            row("secret", "permission denied: must be writable").needs(Needs::Unprivileged),
            row("readonly", "permission denied: must be writable").needs(Needs::Unprivileged),
        ]);
    }
    rows
}
