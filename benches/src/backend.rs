// SPDX-License-Identifier: Apache-2.0
//! Where programs that need KVM run: on this machine, or in the emulated host.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt};

use anyhow::{Context, bail};

use crate::artifact;
use crate::command::{Command, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Finish, Outcome, Streams};
use crate::direct::{DirectControl, DirectSession};
use crate::error::Error;
use crate::host::{Control, HostOptions, HostSession};

/// `flatboot check` ends itself long before this; a check that does not is a "no".
const CHECK_LIMIT: Duration = Duration::from_secs(60);

/// Which KVM programs get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kvm {
    /// This machine's.
    Real,
    /// That of the emulated host.
    Emulated,
}

/// The decision, made once.
#[derive(Debug, Clone)]
pub struct Backend {
    kvm: Kvm,
    because: String,
}

/// A host, for several commands.
#[derive(Debug)]
pub enum Session {
    /// This machine.
    Direct(DirectSession),
    /// An emulated host.
    Emulated(Box<HostSession>),
}

/// Signals to the program that a session runs.
#[derive(Debug, Clone)]
pub enum SessionControl {
    /// On this machine.
    Direct(DirectControl),
    /// In the emulated host.
    Emulated(Control),
}

impl SessionControl {
    /// Sends `signal` to the program.
    pub fn signal(&self, signal: i32) {
        match self {
            Self::Direct(control) => control.signal(signal),
            Self::Emulated(control) => control.signal(signal),
        }
    }

    /// Ends what runs on behalf of `signal`: the program on this machine is sent it, an emulated host is ended at once.
    pub fn end(&self, signal: i32) {
        match self {
            Self::Direct(control) => control.signal(signal),
            Self::Emulated(control) => control.kill_host(signal),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.kvm {
            Kvm::Real => "this machine's KVM",
            Kvm::Emulated => "the emulated KVM host",
        };
        write!(f, "using {place} ({})", self.because)
    }
}

impl Backend {
    /// Decides: as `FLATBOOT_KVM` says (`real`, `emulated`), or, for `auto` and without it, as `flatboot check` finds.
    pub fn open(flatboot: Option<&Path>) -> anyhow::Result<Self> {
        let variable = env::var_os("FLATBOOT_KVM");
        match variable.as_deref().map(|value| (value.to_str(), value)) {
            Some((Some("real"), _)) => Ok(Self { kvm: Kvm::Real, because: "FLATBOOT_KVM=real".into() }),
            Some((Some("emulated"), _)) => Ok(Self { kvm: Kvm::Emulated, because: "FLATBOOT_KVM=emulated".into() }),
            None | Some((Some("auto" | ""), _)) => Self::check(flatboot),
            Some((_, value)) => bail!("FLATBOOT_KVM={}: expected real, emulated or auto", value.display()),
        }
    }

    fn check(flatboot: Option<&Path>) -> anyhow::Result<Self> {
        let path = artifact::needed_flatboot(flatboot)?;
        let mut session = DirectSession::start(&HostOptions::default())?;
        let command = Command::new(&path).args(["check", "--json"]).timeout(CHECK_LIMIT);
        let no = |why: &str| Self { kvm: Kvm::Emulated, because: format!("flatboot check: {why}") };
        match Outcome::capture(|streams| session.run_streaming(&command, streams)) {
            Ok(Outcome { code: 0, .. }) => {
                Ok(Self { kvm: Kvm::Real, because: "flatboot check: it runs guests".into() })
            }
            Ok(Outcome { code: 1, stderr, .. }) => {
                let text = String::from_utf8_lossy(&stderr);
                Ok(no(text.lines().next().unwrap_or("this machine's KVM runs no guests").trim()))
            }
            Ok(Outcome { code: EXIT_NOT_EXECUTABLE | EXIT_NOT_FOUND, .. }) => {
                bail!("{}: cannot be executed: must be the flatboot program", path.display())
            }
            Ok(Outcome { code, .. }) => Ok(no(&format!("exit code {code}"))),
            Err(Error::Timeout(_)) => Ok(no("no answer in time")),
            Err(error) => Err(error).with_context(|| format!("{}: cannot run its check", path.display())),
        }
    }

    /// Which KVM programs get.
    #[must_use]
    pub fn kvm(&self) -> Kvm {
        self.kvm
    }

    /// The directory of the emulated host's kernel, for [`HostOptions::kernel`], so that it is looked for, or built, only
    /// once; none where this machine's KVM is used.
    pub fn host_kernel(&self) -> anyhow::Result<Option<PathBuf>> {
        match self.kvm {
            Kvm::Real => Ok(None),
            Kvm::Emulated => Ok(artifact::host_kernel(None)?.parent().map(Path::to_path_buf)),
        }
    }

    /// Runs one command in a fresh host and keeps what it writes.
    pub fn run(&self, options: &HostOptions, command: &Command) -> Result<Outcome, Error> {
        self.start(options)?.run(command)
    }

    /// Starts a host for several commands.
    pub fn start(&self, options: &HostOptions) -> Result<Session, Error> {
        Ok(match self.kvm {
            Kvm::Real => Session::Direct(DirectSession::start(options)?),
            Kvm::Emulated => Session::Emulated(Box::new(HostSession::start(options)?)),
        })
    }
}

impl Session {
    /// Signals go this way while a program runs.
    #[must_use]
    pub fn control(&self) -> SessionControl {
        match self {
            Self::Direct(session) => SessionControl::Direct(session.control()),
            Self::Emulated(session) => SessionControl::Emulated(session.control()),
        }
    }

    /// Runs a command to its end and keeps what it writes.
    pub fn run(&mut self, command: &Command) -> Result<Outcome, Error> {
        Outcome::capture(|streams| self.run_streaming(command, streams))
    }

    /// Runs a command to its end; what it writes goes to `streams` as it comes.
    pub fn run_streaming(&mut self, command: &Command, streams: Streams<'_>) -> Result<Finish, Error> {
        Ok(match self {
            Self::Direct(session) => session.run_streaming(command, streams)?,
            Self::Emulated(session) => session.run_streaming(command, streams)?,
        })
    }
}
