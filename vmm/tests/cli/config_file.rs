// SPDX-License-Identifier: Apache-2.0
//! A VM as a JSON file: `flatboot config` writes one, `flatboot run --config` reads it.

use std::fs;
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::FLATBOOT;
use crate::refusal::{ERROR, Files, Row, USAGE};

pub(crate) fn rows() -> Vec<Row> {
    let row = |arguments: &str, status: i32, line: &str| Row::new(arguments, arguments, status, line);
    vec![
        row("run --config @/missing", ERROR, "--config @/missing: there is no such file: must exist"),
        row("run --config @/empty", ERROR, "--config @/empty: is empty: must not be"),
        row("run --config @/directory", ERROR, "--config @/directory: is a directory: must be a regular file"),
        row("run --config @/text", ERROR, "--config @/text: is no JSON: …"),
        row(
            "run --config @/text --kernel @/kernel",
            USAGE,
            "the argument '--config <FILE>' cannot be used with '--kernel <FILE>'",
        ),
        row("config", USAGE, "the following required arguments were not provided: --kernel <FILE>"),
        row("config --kernel k --memory size=1", USAGE, "--memory size=1: must be at least 64M"),
    ]
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("config: what it prints is what run takes", printed_is_taken),
        Trial::test("config: a wrong field is named, and nothing is left behind", wrong_field),
    ]
}

/// What `flatboot config` prints for a VM with a kernel that is none.
fn printed(files: &Files) -> Result<Value, Failed> {
    let arguments = files.fill(
        "config --kernel @/text --cpus boot=2,nested=off --memory size=1G,thp=all --serial file=@/new --timeline @/old \
         --disk path=@/disk,readonly=on --rng off --cmdline quiet",
    );
    let output = Command::new(FLATBOOT).args(arguments.split_whitespace()).stdin(Stdio::null()).output()?;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn printed_is_taken() -> Result<(), Failed> {
    let files = Files::new();
    let config = printed(&files)?;
    let path = |name: &str| files.fill(&format!("@/{name}"));
    let expected = json!({
        "payload": { "kernel": path("text"), "cmdline": "quiet" },
        "cpus": { "boot_vcpus": 2, "max_vcpus": 2, "nested": false },
        "memory": {
            "size": 1 << 30, "hugepages": false, "shared": false, "thp": "all", "prefault": false
        },
        "disks": [{ "path": path("disk"), "readonly": true }],
        "net": [],
        "console": { "mode": "Off" },
        "rng": null,
        "serial": { "mode": "File", "file": path("new") },
        "timeline": path("old"),
        "restart_on_reset": false,
        "landlock_enable": false,
        "shutdown_timeout": 10
    });
    assert_eq!(config, expected);
    refused(&files, &config, "kernel @/text: not a kernel: …")
}

fn wrong_field() -> Result<(), Failed> {
    let files = Files::new();
    for (field, value, line) in [
        ("/memory/size", json!(65 << 20 | 1), "--config @/../vm.json: memory.size=68157441: must be a multiple of 1M"),
        (
            "/cpus/boot_vcpus",
            json!(0),
            "--config @/../vm.json: cpus.boot_vcpus=0: must be a number of vCPUs, 1 to 1024",
        ),
        (
            "/cpus/boot_vcpus",
            json!(70000),
            "--config @/../vm.json: cpus.boot_vcpus=70000: must be a number of vCPUs, …",
        ),
        ("/cpus/boot_vcpus", json!("2"), "--config @/../vm.json: cpus.boot_vcpus=2: must be a whole number, 0 or more"),
        ("/disks/0/path", json!(files.fill("@/missing")), "disks[0].path=@/missing: there is no such file: must exist"),
    ] {
        let mut config = printed(&files)?;
        *config.pointer_mut(field).ok_or("no such field")? = value;
        refused(&files, &config, line.replace("@/../vm.json", "…/vm.json").as_str())?;
    }
    Ok(())
}

/// `flatboot run --config` of that, which is refused and leaves every file as it was.
fn refused(files: &Files, config: &Value, line: &str) -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("vm.json");
    fs::write(&path, config.to_string())?;
    let arguments = ["run".into(), "--config".into(), path.into()];
    files.refused(Command::new(FLATBOOT), &arguments, ERROR, line)
}
