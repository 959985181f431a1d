// SPDX-License-Identifier: Apache-2.0
//! From the agent's surroundings into the program's: its cgroup, session, terminal, root and working directory.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use flatboot_bench::command::{EXIT_HOST, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};

use crate::ROOT;

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
    // Whatever the program starts is in its cgroup, and ends with it.
    std::fs::write(cgroup.join("cgroup.procs"), "0")?;
    rustix::process::setsid()?;
    if terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    }
    rustix::process::chroot(ROOT)?;
    Ok(())
}
