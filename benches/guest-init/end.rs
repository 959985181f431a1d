// SPDX-License-Identifier: Apache-2.0
//! How the guest ends.

use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use rustix::system::{RebootCommand, reboot};
use serde_json::json;

use crate::report;

/// Ends the guest as asked. Returning ends PID 1, which is a kernel panic: that is what `exit` is for, and what happens
/// if nothing else works.
pub(crate) fn end(how: &str) -> ExitCode {
    rustix::fs::sync();
    let failed = match how {
        "poweroff" => reboot(RebootCommand::PowerOff).err().map(|error| error.to_string()),
        "reboot" => reboot(RebootCommand::Restart).err().map(|error| error.to_string()),
        "halt" => reboot(RebootCommand::Halt).err().map(|error| error.to_string()),
        "panic" => fs::write("/proc/sysrq-trigger", "c").err().map(|error| format!("/proc/sysrq-trigger: {error}")),
        "hang" => loop {
            thread::sleep(Duration::from_secs(3600));
        },
        "exit" => None,
        _ => Some("expected poweroff, reboot, halt, panic, exit or hang".to_owned()),
    };
    if let Some(error) = failed {
        report::print(&json!({ "check": "end", "ok": false, "end": how, "error": error }));
    }
    ExitCode::FAILURE
}
