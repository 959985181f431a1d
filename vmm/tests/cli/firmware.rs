// SPDX-License-Identifier: Apache-2.0
//! Firmware images that are none, what does not go with firmware, and the smallest firmware that looks around.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::host::{Host, Needs};
use crate::refusal::{ERROR, Files, Row, USAGE};
use crate::{FLATBOOT, images};

/// Exit status of a VM that firmware ended.
const GAVE_UP: i32 = 7;

pub(crate) fn rows() -> Vec<Row> {
    [images(), kernels(), combinations(), vec![memory()]].concat()
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

/// More than it has addresses for. Whatever this host's processor has, all are as wide as can be where there is no KVM.
fn memory() -> Row {
    let line = "--memory size=200T: firmware has 47-bit physical addresses here: must be at most 134214144M, or \
                --kernel alone";
    error("run --firmware @/firmware --memory size=200T", line).needs(Needs::Devices("true"))
}

fn combinations() -> Vec<Row> {
    let usage = |arguments: &str, line: &str| Row::new(arguments, arguments, USAGE, line);
    let must = "must be with a kernel: what firmware finds on a disk brings its own";
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

pub(crate) fn trials(host: &Arc<Host>) -> Vec<Trial> {
    let name = "firmware finds flash that it cannot write, zero memory and fw_cfg";
    let ignored = host.skips(name, Needs::UsableKvm);
    vec![Trial::test(name, looks_around).with_ignored_flag(ignored)]
}

/// Real-mode code that says by a mark whether all is as it should be: 0x1d, nothing to boot, or 0x1f, cannot go on.
#[rustfmt::skip]
const LOOK_AROUND: [u8; 120] = [
    // A write to flash (CS:0x100, which holds 0xf4) goes nowhere.
    0x2e, 0xc6, 0x06, 0x00, 0x01, 0x55,                   // mov byte cs:[0x100], 0x55
    0x2e, 0x80, 0x3e, 0x00, 0x01, 0xf4,                   // cmp byte cs:[0x100], 0xf4
    0x75, 0x65,                                           // jne failed
    // The first 64 KiB of memory are zero.
    0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x89, 0xc7,       // ax = ds = es = di = 0
    0xb9, 0x00, 0x80, 0xfc, 0xf3, 0xaf,                   // mov cx, 0x8000; cld; repe scasw
    0x75, 0x55,                                           // jne failed
    // fw_cfg's signature, by a string instruction.
    0xba, 0x10, 0x05, 0xef, 0x42,                         // mov dx, 0x510; out dx, ax; inc dx
    0xbf, 0x00, 0x10, 0xb9, 0x04, 0x00, 0xf3, 0x6c,       // mov di, 0x1000; mov cx, 4; rep insb
    0x66, 0x81, 0x3e, 0x00, 0x10, b'Q', b'E', b'M', b'U', // cmp dword [0x1000], "QEMU"
    0x75, 0x3d,                                           // jne failed
    // The same by DMA: select key 0 and read 4 bytes to 0x1200; numbers are big-endian.
    0x66, 0xc7, 0x06, 0x00, 0x11, 0x00, 0x00, 0x00, 0x0a, // mov dword [0x1100], 0x0a000000
    0x66, 0xc7, 0x06, 0x04, 0x11, 0x00, 0x00, 0x00, 0x04, // mov dword [0x1104], 0x04000000
    0x66, 0xc7, 0x06, 0x0c, 0x11, 0x00, 0x00, 0x12, 0x00, // mov dword [0x110c], 0x00120000
    0xba, 0x18, 0x05, 0x66, 0xb8, 0x00, 0x00, 0x11, 0x00, // mov dx, 0x518; mov eax, 0x00110000
    0x66, 0xef,                                           // out dx, eax
    0x66, 0x83, 0x3e, 0x00, 0x11, 0x00, 0x75, 0x0f,       // cmp dword [0x1100], 0; jne failed
    0x66, 0x81, 0x3e, 0x00, 0x12, b'Q', b'E', b'M', b'U', // cmp dword [0x1200], "QEMU"
    0x75, 0x04,                                           // jne failed
    0xb0, 0x1d, 0xe6, 0x80,                               // mov al, 0x1d; out 0x80, al
    // failed:
    0xb0, 0x1f, 0xe6, 0x80, 0xf4,                         // mov al, 0x1f; out 0x80, al; hlt
];

fn looks_around() -> Result<(), Failed> {
    const CODE: usize = 0xff00;
    // From the reset vector, 0xfff0, back to the code.
    const JUMP: [u8; 3] = [0xe9, 0x0d, 0xff];
    let files = Files::new();
    let mut image = images::firmware();
    image[CODE..CODE + LOOK_AROUND.len()].copy_from_slice(&LOOK_AROUND);
    image[0xfff0..0xfff0 + JUMP.len()].copy_from_slice(&JUMP);
    fs::write(files.path("image"), &image)?;

    let path = files.fill("@/image");
    let arguments = ["run", "--firmware", &path, "--memory", "size=64M", "--serial", "null"];
    let output = Command::new(FLATBOOT).args(arguments).stdin(Stdio::null()).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(said, "flatboot: firmware found nothing to boot; its console says where it looked\n");
    assert_eq!(output.status.code(), Some(GAVE_UP));
    assert_eq!(fs::read(files.path("image"))?, image, "what the guest writes does not reach the file");
    Ok(())
}
