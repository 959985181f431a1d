// SPDX-License-Identifier: Apache-2.0
//! A real userland: what `make boot` does.

use std::process::{Command, Stdio};

use libtest_mimic::Failed;

use super::lab::{Lab, require};
use crate::Body;

pub(crate) const TESTS: &[(&str, Body)] = &[
    ("debian::login_prompt_then_power_button", |lab| login(lab, &[])),
    ("debian::login_prompt_through_firmware", |lab| login(lab, &["--firmware"])),
    ("debian::a_wrong_size_is_refused", wrong_size),
];

/// `flatboot-bench boot` with `args`: exit code, standard output, standard error.
fn boot(lab: &Lab, args: &[&str]) -> Result<(Option<i32>, String, String), Failed> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatboot-bench"));
    command.arg("boot").args(args).arg("--flatboot").arg(&lab.flatboot).stdin(Stdio::null());
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

/// systemd brings up a login prompt; the power button, which SIGTERM presses, takes it down again.
fn login(lab: &Lab, more: &[&str]) -> Result<(), Failed> {
    let (code, console, messages) = boot(lab, &[&["--memory", "1G", "--cpus", "2"], more].concat())?;
    let last = messages.lines().last().unwrap_or_default();
    let summary =
        last.starts_with("init reached after ") && last.ends_with(" ms (VMM exec to /sbin/init), 2 vCPUs, 1 GiB");
    require(code == Some(0) && console.contains("flatboot login: ") && summary, || {
        format!("exit code {code:?}\n--- console\n{console}\n--- messages\n{messages}")
    })?;
    require(messages.contains("guest powered off"), || messages.clone())
}

fn wrong_size(lab: &Lab) -> Result<(), Failed> {
    let (code, _, messages) = boot(lab, &["--memory", "lots"])?;
    require(code == Some(2) && messages.contains("flatboot: error: --memory size=lots: "), || {
        format!("exit code {code:?}: {messages}")
    })
}
