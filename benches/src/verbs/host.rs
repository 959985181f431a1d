// SPDX-License-Identifier: Apache-2.0
//! `exec`, `host run` and `host shell`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use flatboot_bench::direct::DirectSession;
use flatboot_bench::host::NO_TERMINAL;
use flatboot_bench::{Backend, Command, Error, Finish, HostOptions, HostSession, Kvm, Stdin, Streams, artifact};

use crate::cli::{ExecArgs, PlaceArgs, RunArgs};
use crate::interrupts::Interrupts;

/// On this machine, or in a fresh emulated host.
pub(crate) fn exec(args: &ExecArgs) -> Result<u8> {
    let backend = Backend::open(args.flatboot.as_deref())?;
    eprintln!("flatboot-bench: {backend}");
    match backend.kvm() {
        Kvm::Emulated => emulated(&args.run),
        Kvm::Real => directly(&args.run),
    }
}

/// In a fresh emulated host.
pub(crate) fn emulated(args: &RunArgs) -> Result<u8> {
    let command = args.place.command(&args.program, args.limit());
    in_host(args.place.options(), command, input(args.tty))
}

/// A shell in a fresh emulated host, without a time limit.
pub(crate) fn shell(place: &PlaceArgs) -> Result<u8> {
    if !io::stdin().is_terminal() {
        bail!("{NO_TERMINAL}: host shell needs one; use host run for a script");
    }
    let program = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let mut command = place.command(&[program.into()], None);
    if let Some(term) = std::env::var_os("TERM") {
        command = command.env("TERM", term);
    }
    in_host(place.options(), command, Stdin::Terminal)
}

fn in_host(mut options: HostOptions, mut command: Command, stdin: Stdin) -> Result<u8> {
    // Before signals are caught: a build that takes minutes is ended by Ctrl-C as any build is.
    let image = artifact::host_kernel(options.kernel.as_deref())?;
    options.kernel = image.parent().map(Path::to_path_buf);
    let interrupts = Interrupts::catch().context("cannot handle signals")?;
    let (since, limit) = (Instant::now(), command.timeout);
    options.start_limit = options.start_limit.min(limit.unwrap_or(Duration::MAX));
    let launched = HostSession::launch(&options).and_then(|launched| {
        interrupts.forward(launched.control());
        launched.ready()
    });
    let result = launched.and_then(|mut host| {
        command.timeout = limit.map(|limit| limit.saturating_sub(since.elapsed()));
        let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
        host.run_streaming(&command, Streams { stdin, stdout: &mut stdout, stderr: &mut stderr })
    });
    match (result, limit) {
        // The user's limit, of which the program had what the host's start left.
        (Err(Error::Timeout(_)), Some(limit)) => bail!(Error::Timeout(limit)),
        (Err(Error::StartTimeout { .. }), Some(limit)) if limit <= options.start_limit => bail!(Error::Timeout(limit)),
        (result, _) => Ok(result?.code),
    }
}

fn directly(args: &RunArgs) -> Result<u8> {
    let command = args.place.command(&args.program, args.limit());
    let interrupts = Interrupts::catch().context("cannot handle signals")?;
    let mut session = DirectSession::start(&args.place.options())?;
    interrupts.forward_directly(session.control(), args.tty);
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    let streams = Streams { stdin: input(args.tty), stdout: &mut stdout, stderr: &mut stderr };
    let Finish { code, .. } = session.run_streaming(&command, streams)?;
    Ok(code)
}

/// What the program reads: the terminal if it is to have it, our input unless that is a terminal.
fn input(tty: bool) -> Stdin {
    match (tty, io::stdin().is_terminal()) {
        (true, _) => Stdin::Terminal,
        (false, true) => Stdin::Null,
        (false, false) => Stdin::Inherit,
    }
}
