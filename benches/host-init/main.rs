// SPDX-License-Identifier: Apache-2.0
//! The init of the emulated KVM host.
//!
//! One binary, three roles, told apart by the first argument:
//! - none: PID 1. Mounts what a kernel needs, starts the agent, reaps whatever is orphaned, powers off when the agent ends.
//! - `agent`: talks to flatboot-bench, mounts this machine's files, starts programs.
//! - `enter CGROUP CWD TERMINAL PROGRAM ARGS…`: between fork and exec of a program, in a process of its own, so that all
//!   of it is safe code.

mod agent;
mod enter;
mod mounts;
mod ports;
mod program;
mod session;

use std::ffi::OsStr;
use std::process::{Command, ExitCode};

use rustix::process::{WaitOptions, wait};
use rustix::system::{RebootCommand, reboot, sethostname};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(OsStr::to_str) {
        Some("agent") => agent::run(),
        Some("enter") => enter::run(args),
        _ => first_process(),
    }
}

/// PID 1. Its standard error is the kernel's console, which flatboot-bench shows when the host fails.
fn first_process() -> ExitCode {
    if !rustix::process::getpid().is_init() {
        eprintln!("host-init: this is the init of the emulated KVM host; flatboot-bench starts it");
        return ExitCode::from(2);
    }
    if let Err(error) = mounts::kernel_file_systems() {
        eprintln!("host-init: {error}");
    } else {
        // Only for a shell's prompt to say where it is.
        let _ = sethostname(b"flatboot-host");
        match Command::new("/init").arg("agent").spawn() {
            Ok(agent) => reap_until(agent.id()),
            Err(error) => eprintln!("host-init: cannot start the agent: {error}"),
        }
    }
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("host-init: cannot power off: {error}");
    }
    // PID 1 may not return: the kernel panics, which ends QEMU as well.
    ExitCode::FAILURE
}

/// Any process may become ours; only the agent's end is the host's.
fn reap_until(agent: u32) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(agent) => {
                eprintln!("host-init: the agent ended: {status:?}");
                return;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                eprintln!("host-init: cannot wait: {error}");
                return;
            }
        }
    }
}
