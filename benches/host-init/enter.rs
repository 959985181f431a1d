// SPDX-License-Identifier: Apache-2.0
//! From the agent's surroundings into the program's: its cgroup, session, terminal and working directory.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use flatboot_bench::command::{EXIT_HOST, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

/// Becomes the program; returns only if it cannot.
pub(crate) fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(cgroup), Some(cwd), Some(terminal), Some(program)) = (args.next(), args.next(), args.next(), args.next())
    else {
        eprintln!("host-init: enter: expected CGROUP CWD TERMINAL PROGRAM");
        return ExitCode::from(EXIT_HOST);
    };
    if let Err(error) = surroundings(Path::new(&cgroup), terminal == "1") {
        eprintln!("host-init: cannot prepare for {}: {error}", program.display());
        return ExitCode::from(EXIT_HOST);
    }
    if let Err(error) = std::env::set_current_dir(&cwd) {
        eprintln!("flatboot-bench: {}: cannot make it the working directory: {error}", cwd.display());
        return ExitCode::from(EXIT_HOST);
    }
    let error = Command::new(&program).args(args).exec();
    eprintln!("flatboot-bench: {}: {error}", program.display());
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_NOT_EXECUTABLE })
}

fn surroundings(cgroup: &Path, terminal: bool) -> io::Result<()> {
    keep_off_cpu_0()?;
    // Whatever the program starts is in its cgroup, and ends with it.
    std::fs::write(cgroup.join("cgroup.procs"), "0")?;
    rustix::process::setsid()?;
    if terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    }
    Ok(())
}

/// No guest may run on CPU 0. Whenever any processor loads x87 state that has no exception pending (FNINIT, FXRSTOR, XRSTOR),
/// QEMU takes back IGNNE# by changing a word of CPU 0's state, and does not do it atomically (`cpu_clear_ignne()`, QEMU 7.2).
/// In that word CPU 0 also keeps whether nested paging and the global interrupt flag are on. If it enters or leaves a guest at
/// that moment, the change is lost: it goes on with the guest's page tables in the host, or the other way round, and the guest,
/// or the whole machine, dies of a triple fault.
fn keep_off_cpu_0() -> io::Result<()> {
    let mut allowed = sched_getaffinity(None)?;
    allowed.unset(0);
    Ok(sched_setaffinity(None, &allowed)?)
}
