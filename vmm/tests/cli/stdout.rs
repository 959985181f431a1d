// SPDX-License-Identifier: Apache-2.0
//! Standard output in place of a terminal: what a guest writes is all there, in order, and no vCPU waits for a disk.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::{RUNS, program};
use crate::net::wait;

/// Bytes that [`COUNTS`] writes. The last of them but one is the one that the keyboard controller resets by.
const COUNT: u16 = 0x1ffe;
/// All bytes in order again and again, then a reset:
/// `mov dx, 0x3f8; mov ecx, COUNT; 1: out dx, al; inc al; loop 1b; out 0x64, al; hlt`
const COUNTS: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb9, 0xfe, 0x1f, 0, 0, 0xee, 0xfe, 0xc0, 0xe2, 0xfb, 0xe6, 0x64, 0xf4];

/// A test.
type Body = fn() -> Result<(), Failed>;

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    let tests: [(&str, Body); 2] = [
        ("standard output is a file: all is there, behind what was there", complete),
        ("standard output is a file: a thread writes it, and only then", by_a_thread),
    ];
    let trial = |(name, body): (&str, Body)| {
        let ignored = host.skips(name, Needs::OpenKvm);
        Trial::test(name, body).with_ignored_flag(ignored)
    };
    tests.into_iter().map(trial).collect()
}

fn start(directory: &Path, code: &[u8], stdout: Stdio) -> Result<Child, Failed> {
    let kernel = directory.join("kernel");
    fs::write(&kernel, program(code))?;
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args(["run", "--memory", "size=64M", "--rng", "off", "--kernel"]).arg(&kernel);
    Ok(flatboot.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped()).spawn()?)
}

fn complete() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("said");
    fs::write(&file, "before\n")?;
    for life in 1..=2 {
        let output = File::options().append(true).open(&file)?;
        let ended = start(directory.path(), COUNTS, output.into())?.wait_with_output()?;
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let bytes = (0..COUNT).map(|number| number.to_le_bytes()[0]);
        let all: Vec<u8> = (0..life).flat_map(|_| bytes.clone()).collect();
        let said = fs::read(&file)?;
        let said = said.strip_prefix(b"before\n").ok_or("what was there is gone")?;
        assert!(said == all, "{} bytes of {}", said.len(), all.len());
    }
    Ok(())
}

/// Of a pipe, the reader is waited for, so that nothing is lost.
fn by_a_thread() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("said");
    for (stdout, expected) in [(Stdio::from(File::create(&file)?), true), (Stdio::piped(), false)] {
        let mut vm = start(directory.path(), RUNS, stdout)?;
        let threads = || -> Vec<String> {
            let tasks = fs::read_dir(format!("/proc/{}/task", vm.id())).into_iter().flatten().flatten();
            tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect()
        };
        let has = |name: &str| threads().iter().any(|thread| thread.trim() == name);
        // The last that a VM starts.
        let runs = wait("the guest runs", || has("serial-input"));
        let found = has("serial-output");
        vm.kill()?;
        vm.wait()?;
        runs?;
        assert_eq!(found, expected);
    }
    Ok(())
}
