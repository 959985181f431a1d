// SPDX-License-Identifier: Apache-2.0
//! The program on a terminal: what it says there, the keys that end it, and the terminal's own mode afterwards.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::FLATBOOT;
use crate::host::{Host, Needs};
use crate::kvm::{RUNS, program};

pub(crate) fn trials(host: &Host) -> Vec<Trial> {
    let name = "on a terminal: the keys that end it are said, end it, and leave the terminal as it was";
    let ignored = host.skips(name, Needs::OpenKvm);
    vec![Trial::test(name, on_a_terminal).with_ignored_flag(ignored)]
}

/// script(1) gives its command a terminal of its own, and passes on to it what it is given.
fn on_a_terminal() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("kernel"), program(RUNS))?;
    let commands = format!(
        "stty -g >before; {FLATBOOT} run --kernel kernel --memory size=64M --rng off; echo status $?; stty -g >after"
    );
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &commands, "/dev/null"]).current_dir(directory.path());
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut keys, mut screen) = (child.stdin.take().ok_or("no keys")?, child.stdout.take().ok_or("no screen")?);
    let (mut shown, mut byte) = (String::new(), [0]);
    let mut typed = false;
    while screen.read(&mut byte)? > 0 {
        shown.push(char::from(byte[0]));
        // The guest's only word: the terminal is raw by then, and Ctrl-C is the guest's.
        if !typed && shown.ends_with('R') && shown.contains("for the guest") {
            keys.write_all(b"\x03\x01x")?;
            typed = true;
        }
    }
    child.wait()?;
    assert!(shown.contains("flatboot: Ctrl-A x ends the VM, Ctrl-A Ctrl-A is a Ctrl-A for the guest"), "{shown}");
    assert!(shown.contains("flatboot: guest stopped: Ctrl-A x was typed"), "{shown}");
    assert!(shown.contains("status 6"), "{shown}");
    let mode = |name: &str| fs::read_to_string(directory.path().join(name));
    assert_eq!(mode("before")?, mode("after")?);
    Ok(())
}
