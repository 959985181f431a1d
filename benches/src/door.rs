// SPDX-License-Identifier: Apache-2.0
//! The door: every program that needs KVM goes through it, to this machine's KVM or to the emulated host's.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt};

use crate::artifact::{self, ArtifactError};
use crate::command::{Command, EXIT_HOST, EXIT_TIMEOUT, Finish, Outcome, Streams};
use crate::direct::{DirectControl, DirectError, DirectSession};
use crate::host::{Control, HostError, HostOptions, HostSession};

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
pub struct Door {
    kvm: Kvm,
    because: String,
}

/// A host behind the door, for several commands.
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

/// A program could not be run behind the door.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `FLATBOOT_KVM` has a value that means nothing.
    #[error("FLATBOOT_KVM={0:?}: expected real, emulated or auto")]
    Variable(std::ffi::OsString),
    /// Nobody can say whether KVM is usable.
    #[error(
        "cannot tell whether this machine's KVM is usable: no flatboot binary; build it, name it with --flatboot or FLATBOOT, or set FLATBOOT_KVM to real or emulated"
    )]
    NoFlatboot,
    /// The check could not be run.
    #[error("{}: cannot run its check", path.display())]
    Check {
        /// The flatboot binary.
        path: PathBuf,
        /// Why.
        source: DirectError,
    },
    /// Something to run is missing.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The emulated host failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Running directly failed.
    #[error(transparent)]
    Direct(#[from] DirectError),
}

impl Error {
    /// Exit code that tells the door's failures from the program's: 124 time ran out, 128 + n ended by signal n, else 125.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Host(HostError::Timeout { .. }) | Self::Direct(DirectError::Timeout { .. }) => EXIT_TIMEOUT,
            Self::Host(HostError::Killed(signal)) => u8::try_from(128 + signal).unwrap_or(EXIT_HOST),
            _ => EXIT_HOST,
        }
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.kvm {
            Kvm::Real => "this machine's KVM",
            Kvm::Emulated => "the emulated KVM host",
        };
        write!(f, "using {place} ({})", self.because)
    }
}

impl Door {
    /// Decides: as `FLATBOOT_KVM` says (`real`, `emulated`), or, for `auto` and without it, as `flatboot check` finds.
    pub fn open(flatboot: Option<&Path>) -> Result<Self, Error> {
        let variable = env::var_os("FLATBOOT_KVM");
        match variable.as_deref().map(|value| (value.to_str(), value)) {
            Some((Some("real"), _)) => Ok(Self { kvm: Kvm::Real, because: "FLATBOOT_KVM=real".into() }),
            Some((Some("emulated"), _)) => Ok(Self { kvm: Kvm::Emulated, because: "FLATBOOT_KVM=emulated".into() }),
            None | Some((Some("auto" | ""), _)) => Self::check(flatboot),
            Some((_, value)) => Err(Error::Variable(value.to_owned())),
        }
    }

    fn check(flatboot: Option<&Path>) -> Result<Self, Error> {
        let path = artifact::flatboot(flatboot).ok_or(Error::NoFlatboot)?;
        let failed = |source| Error::Check { path: path.clone(), source };
        let mut session = DirectSession::start(&HostOptions::default()).map_err(failed)?;
        let command = Command::new(&path).args(["check", "--json"]).timeout(CHECK_LIMIT);
        match Outcome::capture(|streams| session.run_streaming(&command, streams)) {
            Ok(Outcome { code: 0, .. }) => {
                Ok(Self { kvm: Kvm::Real, because: "flatboot check: it runs guests".into() })
            }
            Ok(Outcome { code: 1, stderr, .. }) => {
                let text = String::from_utf8_lossy(&stderr);
                let why = text.lines().next().unwrap_or("this machine's KVM runs no guests");
                Ok(Self { kvm: Kvm::Emulated, because: format!("flatboot check: {}", why.trim()) })
            }
            Ok(Outcome { code, .. }) => {
                Ok(Self { kvm: Kvm::Emulated, because: format!("flatboot check: exit code {code}") })
            }
            Err(DirectError::Timeout { .. }) => {
                Ok(Self { kvm: Kvm::Emulated, because: "flatboot check: no answer in time".into() })
            }
            Err(source) => Err(failed(source)),
        }
    }

    /// Which KVM programs get.
    #[must_use]
    pub fn kvm(&self) -> Kvm {
        self.kvm
    }

    /// The directory of the emulated host's kernel, for [`HostOptions::kernel`], so that it is looked for, or built, only
    /// once; none where this machine's KVM is used.
    pub fn host_kernel(&self) -> Result<Option<PathBuf>, Error> {
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
