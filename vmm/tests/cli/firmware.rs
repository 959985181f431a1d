// SPDX-License-Identifier: Apache-2.0
//! Firmware images that are none, and what does not go with firmware.

use crate::host::Needs;
use crate::refusal::{ERROR, Row, USAGE};

pub(crate) fn rows() -> Vec<Row> {
    [images(), kernels(), combinations()].concat()
}

fn error(arguments: &str, line: &str) -> Row {
    Row::new(arguments, arguments, ERROR, line)
}

fn images() -> Vec<Row> {
    let file =
        |name: &str, fault: &str| error(&format!("run --firmware @/{name}"), &format!("--firmware @/{name}: {fault}"));
    let content = |name: &str, found: &str| {
        let line =
            format!("firmware @/{name}: not firmware: {found}; an EDK2 image for QEMU's microvm machine is needed");
        error(&format!("run --firmware @/{name}"), &line)
    };
    vec![
        file("missing", "there is no such file: must exist"),
        file("directory", "is a directory: must be a regular file"),
        file("pipe", "is a pipe: must be a regular file"),
        file("empty", "is empty: must not be"),
        file("kernel", "has … bytes: must be at least 65536"),
        file("odd", "has 66048 bytes: must be a multiple of 4096"),
        file("large", "has 68157440 bytes: must be at most 16777216"),
        file("secret", "permission denied: must be readable").needs(Needs::Unprivileged),
        content("zeroes", "its last 16 bytes, where the processor starts, are all 0x00"),
        content("erased", "its last 16 bytes, where the processor starts, are all 0xff"),
        content("volumeless", "no EFI firmware volume (_FVH) begins at a multiple of 4 KiB"),
        // What is wrong with the image comes before what is wrong with the kernel.
        error("run --firmware @/zeroes --kernel @/text", "firmware @/zeroes: not firmware: …"),
        error("run --firmware @/missing --kernel @/missing", "--firmware @/missing: there is no such file: must exist"),
    ]
}

/// Kernels that firmware cannot start.
fn kernels() -> Vec<Row> {
    let row = |rest: &str, line: &str| error(&format!("run --firmware @/firmware {rest}"), line);
    let needed = "firmware needs a bzImage with an EFI stub (CONFIG_EFI_STUB)";
    vec![
        row("--kernel @/kernel", &format!("kernel @/kernel: an ELF vmlinux; {needed}")),
        row("--kernel @/bzimage", &format!("kernel @/bzimage: a bzImage without an EFI stub; {needed}")),
        row("--kernel @/text", "kernel @/text: not a kernel: …"),
        row("--kernel @/missing", "--kernel @/missing: there is no such file: must exist"),
        row("--kernel @/huge", "--kernel @/huge: has 4294967296 bytes: must be at most 4294967295"),
        row(
            "--kernel @/efi --initramfs @/huge",
            "--initramfs @/huge: has 4294967296 bytes: must be at most 4294967295",
        ),
        row("--kernel @/efi --initramfs @/missing", "--initramfs @/missing: there is no such file: must exist"),
    ]
}

fn combinations() -> Vec<Row> {
    let usage = |arguments: &str, line: &str| Row::new(arguments, arguments, USAGE, line);
    let must = "must be with --kernel: what firmware finds on a disk brings its own";
    vec![
        usage("run --firmware @/firmware --initramfs @/initramfs", &format!("--initramfs @/initramfs: {must}")),
        usage("run --firmware @/firmware --cmdline quiet", &format!("--cmdline quiet: {must}")),
        // The options are wrong together, whatever files there are.
        usage("run --firmware @/missing --cmdline quiet", &format!("--cmdline quiet: {must}")),
        error(
            "run --firmware @/firmware --timeline @/firmware",
            "--timeline @/firmware: is the file of --firmware, too: must be a file of its own",
        ),
        error(
            "run --firmware @/firmware --disk path=@/firmware",
            "--disk @/firmware: is the file of --firmware, too: must be a file of its own",
        ),
    ]
}
