// SPDX-License-Identifier: Apache-2.0
//! The log: a line each, with time, level and thread, where and as much of it as was asked for.

use std::fs;
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::program;
use crate::net::wait;

/// Writes to the serial port without end: `mov dx, 0x3f8; mov al, 'R'; 1: out dx, al; jmp 1b`
const WRITER: &[u8] = &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'R', 0xee, 0xeb, 0xfd];

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    let name = "log: lines have time, level and thread, and go where they are to";
    let ignored = host.skips(name, Needs::OpenKvm);
    vec![Trial::test(name, lines).with_ignored_flag(ignored)]
}

fn lines() -> Result<(), Failed> {
    for (options, verbose, file) in
        [("", false, false), ("-v", true, false), ("--log-file log", false, true), ("-v --log-file log", true, true)]
    {
        let (log, other) = logged(options, file)?;
        let line = |level: &str, thread: &str, what: &str| {
            let found = log.lines().find(|line| line.contains(what));
            found.is_some_and(|line| is_line(line, level, thread))
        };
        let seen = || format!("{options}: {log}, and besides: {other}");
        assert!(line("WARN", "vcpu0", "the file has reached its limit (serial_limit)"), "{}", seen());
        assert_eq!(line("INFO", "main", "asked the guest to power off"), verbose, "{}", seen());
        assert!(!other.contains("WARN") && !other.contains("INFO"), "{}", seen());
        // What a log holds stays.
        assert_eq!(log.starts_with("earlier\n"), file, "{}", seen());
    }
    Ok(())
}

/// As in `2026-01-31T12:00:00.000001Z  INFO main flatboot::vmm: what`.
fn is_line(line: &str, level: &str, thread: &str) -> bool {
    let mut words = line.split_whitespace();
    let time = words.next().unwrap_or_default();
    let is_time = time.len() == 27 && time.ends_with('Z') && time.as_bytes().get(10) == Some(&b'T');
    is_time
        && words.next() == Some(level)
        && words.next() == Some(thread)
        && words.next().is_some_and(|module| module.starts_with("flatboot::"))
}

/// The log of a guest that says more than it may and is then asked to power off, and what was said elsewhere.
fn logged(options: &str, file: bool) -> Result<(String, String), Failed> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    fs::write(path("kernel"), program(WRITER))?;
    fs::write(path("log"), "earlier\n")?;
    let arguments = "run --kernel kernel --memory size=64M --rng off --serial file=console --serial-limit 8 \
                     --shutdown-timeout 0";
    let mut flatboot = Command::new(FLATBOOT);
    flatboot.args(arguments.split_whitespace()).args(options.split_whitespace()).current_dir(directory.path());
    flatboot.env_remove("FLATBOOT_LOG").stdin(Stdio::null()).stdout(Stdio::null());
    let child = flatboot.stderr(fs::File::create(path("errors"))?).spawn()?;
    let mut child = child;
    let log = if file { "log" } else { "errors" };
    wait("it has said too much", || fs::read_to_string(path(log)).is_ok_and(|log| log.contains("(serial_limit)")))?;
    Command::new("kill").arg(child.id().to_string()).status()?;
    child.wait()?;
    let (log, other) = (fs::read_to_string(path(log))?, fs::read_to_string(path("errors"))?);
    Ok(if file { (log, other) } else { (log, String::new()) })
}
