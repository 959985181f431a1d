// SPDX-License-Identifier: Apache-2.0
//! Files that flatboot is to read: initramfs, hand-off, disks, source of random bytes.

use crate::host::Needs;
use crate::refusal::{ERROR, Row};

pub(crate) fn rows() -> Vec<Row> {
    [inputs(), disks(), shared()].concat()
}

fn error(arguments: &str, line: &str) -> Row {
    Row::new(arguments, arguments, ERROR, line)
}

fn inputs() -> Vec<Row> {
    let mut rows = Vec::new();
    for (option, value) in [("--initramfs", ""), ("--study", "handoff_file=")] {
        let given = format!("{option} {value}");
        for (name, fault) in [
            ("missing", "there is no such file: must exist"),
            ("empty", "is empty: must not be"),
            ("directory", "is a directory: must be a regular file"),
            ("pipe", "is a pipe: must be a regular file"),
        ] {
            rows.push(error(&format!("run {given}@/{name}"), &format!("{given}@/{name}: {fault}")));
        }
        let line = format!("{given}@/secret: permission denied: must be readable");
        rows.push(error(&format!("run {given}@/secret"), &line).needs(Needs::Unprivileged));
    }
    let too_large =
        "initramfs: 68157440 bytes: must be at most …, the largest piece that the kernel leaves of --memory size=64M";
    rows.extend([
        error("run --initramfs @/large --memory size=64M", too_large),
        error("map --kernel @/kernel --initramfs @/large --memory size=64M", too_large),
        error(
            "map --kernel @/kernel --initramfs @/missing",
            "--initramfs @/missing: there is no such file: must exist",
        ),
        error(
            "run --study handoff_file=@/table",
            "--study handoff_file=@/table: has 262129 bytes: must be at most 262128",
        ),
        error("run --rng src=@/missing", "--rng @/missing: there is no such file: must exist"),
        error(
            "run --rng src=@/directory",
            "--rng @/directory: is a directory: must be a character device or a regular file",
        ),
        error("run --kernel @/secret", "--kernel @/secret: permission denied: must be readable")
            .needs(Needs::Unprivileged),
        error("run --rng src=@/secret", "--rng @/secret: permission denied: must be readable")
            .needs(Needs::Unprivileged),
    ]);
    rows
}

fn disks() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, fault) in [
        ("missing", "there is no such file: must exist"),
        ("empty", "is empty: must not be"),
        ("ragged", "has 513 bytes: must be a multiple of 512"),
        ("directory", "is a directory: must be a regular file or a block device"),
        ("pipe", "is a pipe: must be a regular file or a block device"),
    ] {
        for rest in ["", ",readonly=on"] {
            rows.push(error(&format!("run --disk path=@/{name}{rest}"), &format!("--disk @/{name}: {fault}")));
        }
        // The second of two.
        let line = format!("--disk @/{name}: {fault}");
        rows.push(error(&format!("run --disk path=@/disk --disk path=@/{name}"), &line));
    }
    let device = "--disk /dev/null: is a character device: must be a regular file or a block device";
    rows.push(error("run --disk path=/dev/null", device));
    for (name, rest, fault) in [
        ("secret", "", "permission denied: must be readable"),
        ("secret", ",readonly=on", "permission denied: must be readable"),
        ("readonly", "", "cannot be written: must be writable, or be used with readonly=on"),
    ] {
        let row = error(&format!("run --disk path=@/{name}{rest}"), &format!("--disk @/{name}: {fault}"));
        rows.push(row.needs(Needs::Unprivileged));
    }
    rows
}

/// A file that is written has no other use.
fn shared() -> Vec<Row> {
    let of = |arguments: &str, option: &str, file: &str, other: &str| {
        error(arguments, &format!("{option} @/{file}: is the file of {other}, too: must be a file of its own"))
    };
    vec![
        of("run --disk path=@/disk --disk path=@/disk", "--disk", "disk", "--disk"),
        of("run --disk path=@/disk --disk path=@/link", "--disk", "link", "--disk"),
        of("run --disk path=@/disk,readonly=on --disk path=@/link", "--disk", "link", "--disk"),
        of("run --disk path=@/disk --timeline @/link", "--timeline", "link", "--disk"),
        of("run --disk path=@/disk,readonly=on --serial file=@/link", "--serial", "link", "--disk"),
        of("run --timeline @/kernel", "--timeline", "kernel", "--kernel"),
        of("run --initramfs @/initramfs --serial file=@/initramfs", "--serial", "initramfs", "--initramfs"),
        of("run --study handoff_file=@/text --timeline @/text", "--timeline", "text", "--study handoff_file"),
        of("run --serial file=@/new --timeline @/new", "--timeline", "new", "--serial"),
        of("run --serial file=@/old --timeline @/old", "--timeline", "old", "--serial"),
        of("run --kernel @/disk --disk path=@/disk", "--disk", "disk", "--kernel"),
        // Flatboot's own file is opened before those of the VM.
        of("run --event-monitor path=@/disk --disk path=@/link", "--disk", "link", "--event-monitor"),
        of(
            "run --event-monitor path=@/initramfs --initramfs @/initramfs",
            "--initramfs",
            "initramfs",
            "--event-monitor",
        ),
        of("run --event-monitor @/old --serial file=@/old", "--serial", "old", "--event-monitor"),
        of(
            "run --restore @/directory --event-monitor @/directory/state",
            "--restore",
            "directory/state",
            "--event-monitor",
        ),
        of("run --event-monitor @/old --timeline @/old", "--timeline", "old", "--event-monitor"),
    ]
}
