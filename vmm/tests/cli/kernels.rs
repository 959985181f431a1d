// SPDX-License-Identifier: Apache-2.0
//! Kernel images that are none, or not whole, or do not fit.

use std::ffi::OsString;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::refusal::{ERROR, Files, Row, write};
use crate::{FLATBOOT, images};

pub(crate) fn rows() -> Vec<Row> {
    let row = |name: &str, arguments: &str, line: &str| Row::new(&format!("kernel: {name}"), arguments, ERROR, line);
    vec![
        row("missing", "run --kernel @/missing", "--kernel @/missing: there is no such file: must exist"),
        row("below a file", "run --kernel @/disk/kernel", "--kernel @/disk/kernel: there is no such file: must exist"),
        row("empty", "run --kernel @/empty", "--kernel @/empty: is empty: must not be"),
        row("a directory", "run --kernel @/directory", "--kernel @/directory: is a directory: must be a regular file"),
        row("a pipe", "run --kernel @/pipe", "--kernel @/pipe: is a pipe: must be a regular file"),
        row("a device", "run --kernel /dev/null", "--kernel /dev/null: is a character device: must be a regular file"),
        row(
            "text",
            "run --kernel @/text",
            "kernel @/text: not a kernel: no ELF and no Linux setup header; an x86-64 ELF vmlinux or a bzImage is needed",
        ),
        row(
            "an initramfs",
            "run --kernel @/initramfs",
            "kernel @/initramfs: not a kernel: a cpio archive (an initramfs?); an x86-64 ELF vmlinux or a bzImage is needed",
        ),
        row(
            "a program",
            &format!("run --kernel {FLATBOOT}"),
            "kernel …: not a kernel: an ELF program linked for user space; …",
        ),
        row("map: empty", "map --kernel @/empty", "--kernel @/empty: is empty: must not be"),
        row("map: text", "map --kernel @/text", "kernel @/text: not a kernel: …"),
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("kernel: a vmlinux cut off anywhere", || cut_off("vmlinux", &images::vmlinux())),
        Trial::test("kernel: a bzImage cut off anywhere", || cut_off("bzImage", &images::bzimage())),
        Trial::test("kernel: headers that are wrong", wrong_headers),
        Trial::test("kernel: its name cannot break the line", names_with_control_bytes),
    ]
}

/// `flatboot run` and `flatboot map` refuse `bytes` as a kernel.
fn refused(files: &Files, bytes: &[u8], memory: &str, line: &str) -> Result<(), Failed> {
    write(&files.path("image"), bytes);
    for verb in ["run", "map"] {
        let arguments = [verb, "--kernel", &files.fill("@/image"), "--memory", memory].map(OsString::from).to_vec();
        files.refused(Command::new(FLATBOOT), &files.with_defaults(arguments), ERROR, line)?;
    }
    Ok(())
}

/// Lengths over the whole file, close together at both ends. That every length is refused, the unit tests show.
fn cut_off(name: &str, image: &[u8]) -> Result<(), Failed> {
    let files = Files::new();
    let lengths = (1..16).chain((16..image.len()).step_by(29)).chain(image.len() - 4..image.len());
    for length in lengths {
        let pattern = if length < 4 {
            "kernel @/image: …"
        } else {
            "kernel @/image: truncated: … ends at byte …, the file has …"
        };
        refused(&files, &image[..length], "size=512M", pattern)
            .map_err(|error| format!("{name}, {length} bytes: {}", error.message().unwrap_or_default()))?;
    }
    Ok(())
}

fn wrong_headers() -> Result<(), Failed> {
    let files = Files::new();
    let patched = |image: &[u8], at: usize, bytes: &[u8]| {
        let mut image = image.to_vec();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        image
    };
    let (elf, bzimage) = (images::vmlinux(), images::bzimage());
    let arm_image = patched(&vec![0; 4096], 56, b"ARM\x64");
    let needed = "this machine runs x86-64 kernels";
    for (image, memory, line) in [
        (
            patched(&elf, 18, &183u16.to_le_bytes()),
            "size=1G",
            format!("kernel @/image: built for 64-bit Arm; {needed}"),
        ),
        (patched(&elf, 18, &3u16.to_le_bytes()), "size=1G", format!("kernel @/image: built for i386; {needed}")),
        (
            patched(&elf, 4, &[1]),
            "size=1G",
            format!("kernel @/image: built for a 32-bit machine (ELF class 1); {needed}"),
        ),
        (arm_image, "size=1G", format!("kernel @/image: built for 64-bit Arm; {needed}")),
        // xloadflags without XLF_KERNEL_64.
        (
            patched(&bzimage, 0x236, &[0]),
            "size=1G",
            format!("kernel @/image: built for 32-bit x86 (no 64-bit entry point); {needed}"),
        ),
        // A segment of 100 MiB, a bzImage that decompresses to as much.
        (
            patched(&elf, 64 + 40, &(100u64 << 20).to_le_bytes()),
            "size=64M",
            "kernel: takes guest memory 0x1000000..0x7400000: must be inside 0x100000..…, \
             the RAM for kernels that --memory size=64M gives"
                .to_owned(),
        ),
        (
            patched(&bzimage, 0x260, &(100u32 << 20).to_le_bytes()),
            "size=64M",
            "kernel: takes guest memory 0x100000..0x7400000: must be inside 0x100000..…".to_owned(),
        ),
    ] {
        refused(&files, &image, memory, &line)?;
    }
    Ok(())
}

fn names_with_control_bytes() -> Result<(), Failed> {
    let files = Files::new();
    let arguments = ["run", "--kernel", &files.fill("@/a\nb\u{1b}[31m")].map(OsString::from).to_vec();
    let line = "--kernel @/a\u{fffd}b\u{fffd}[31m: there is no such file: must exist";
    files.refused(Command::new(FLATBOOT), &files.with_defaults(arguments), ERROR, line)
}
