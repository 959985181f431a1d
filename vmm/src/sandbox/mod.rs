// SPDX-License-Identifier: Apache-2.0
//! What flatboot itself may do, for the day when a guest has taken it over: each thread only what its kind needs.
//!
//! [`lists`] says which system calls those are, and is the file to read. A thread takes its filter by [`Jail::enter`] before it
//! handles anything of the guest's, and never gets rid of it. What holds for the whole process is in [`harden`]; what is left of the
//! file system with `--landlock` is in [`files`]. docs/threat-model.md says what all that is worth.

mod error;
mod files;
mod filter;
mod harden;
mod kind;
mod lists;
mod names;
#[cfg(test)]
mod tests;
mod violation;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};

use seccompiler::BpfProgram;

pub use error::JailError;
pub use filter::Seccomp;
pub use harden::harden;
pub use kind::Kind;
pub use violation::STATUS;

/// A server's owner, which prepares VMs, is in its jail.
static OWNED: AtomicBool = AtomicBool::new(false);

/// Whether whoever prepares a VM may start no program, nor make the kind of socket by which network interfaces are set up.
#[must_use]
pub fn owner_is_jailed() -> bool {
    OWNED.load(Ordering::Relaxed)
}

/// Whether this host can keep files away from a thread.
#[must_use]
pub fn has_landlock() -> bool {
    files::can_be_kept_away()
}

/// The jail of one VM: what its threads enter.
#[derive(Debug, Clone)]
pub struct Jail(Arc<Walls>);

#[derive(Debug)]
struct Walls {
    seccomp: Seccomp,
    /// By [`Kind`]; made by the first thread of its kind, beside what the others do meanwhile.
    filters: [OnceLock<Vec<BpfProgram>>; Kind::ALL.len()],
    /// Keeps every file away from a thread that enters.
    nothing: Option<files::Nothing>,
}

/// A thread's way into its jail.
#[derive(Debug)]
pub struct Entered(Receiver<Result<(), JailError>>);

impl Entered {
    /// Waits until the thread is in its jail.
    pub fn wait(self) -> Result<(), JailError> {
        self.0.recv().unwrap_or(Err(JailError::Lost))
    }
}

impl Jail {
    /// No jail at all.
    #[must_use]
    pub fn none() -> Self {
        Self::with(Seccomp::False, None)
    }

    /// Filters by `seccomp`. From now on a call that one of them does not allow ends the process, `restore` being called first,
    /// which must be safe in a signal handler: no memory is to be allocated and no lock to be waited for.
    pub fn new(seccomp: Seccomp, restore: fn()) -> Result<Self, JailError> {
        if seccomp == Seccomp::True {
            violation::watch(restore).map_err(JailError::Signal)?;
        }
        Ok(Self::with(seccomp, None))
    }

    /// The same, with Landlock: a thread that enters opens nothing at all; one with a socket to remove, what it could before.
    pub fn without_files(self) -> Result<Self, JailError> {
        self.with_nothing(files::Nothing::new(true))
    }

    fn with_nothing(self, nothing: Result<files::Nothing, JailError>) -> Result<Self, JailError> {
        Ok(Self::with(self.0.seccomp, Some(nothing?)))
    }

    /// The same, and from here on this thread and those that it starts open nothing but `/dev/kvm` and what Linux says of this host,
    /// and remove nothing but files in the directories of `created`, which have been created for this VM.
    pub fn without_files_from_here(self, created: &[PathBuf]) -> Result<Self, JailError> {
        files::restrict(created)?;
        self.with_nothing(files::Nothing::new(false))
    }

    /// What a thread of `kind` calls first, and what whoever starts it waits for: then the thread is in its jail.
    pub fn gate(&self, kind: Kind) -> (impl FnOnce() -> Option<()> + Send + use<>, Entered) {
        self.gate_beside(kind, Vec::new())
    }

    /// The same; if there are any `created`, the thread can, by Landlock, remove files beside them, and open none but `/dev/kvm` and what Linux
    /// says of this host.
    pub fn gate_beside(
        &self,
        kind: Kind,
        created: Vec<PathBuf>,
    ) -> (impl FnOnce() -> Option<()> + Send + use<>, Entered) {
        let (sender, receiver) = channel();
        let jail = self.clone();
        let begin = move || {
            let walled = if created.is_empty() { Ok(()) } else { files::restrict(&created) };
            let entered = walled.and_then(|()| jail.enter(kind));
            let inside = entered.is_ok().then_some(());
            // Nobody waits for a thread that was not started.
            let _ = sender.send(entered);
            inside
        };
        (begin, Entered(receiver))
    }

    fn with(seccomp: Seccomp, nothing: Option<files::Nothing>) -> Self {
        Self(Arc::new(Walls { seccomp, filters: Default::default(), nothing }))
    }

    /// This thread is one of `kind` from now on, and can do nothing else until it ends; nor can a thread that it starts.
    pub fn enter(&self, kind: Kind) -> Result<(), JailError> {
        let Walls { seccomp, filters, nothing } = &*self.0;
        // First, because the filter does not allow it. Who has a socket to remove opens nothing by its filter.
        if let Some(nothing) = nothing
            && kind != Kind::VmmWithSocket
        {
            nothing.enter()?;
        }
        if *seccomp == Seccomp::False {
            return Ok(());
        }
        if kind == Kind::Owner && *seccomp == Seccomp::True {
            OWNED.store(true, Ordering::Relaxed);
        }
        violation::name_thread();
        let Some(filter) = filters.get(kind as usize) else { return Ok(()) };
        if let Some(made) = filter.get() {
            return filter::install(made);
        }
        let made = filter::compile(kind, *seccomp)?;
        filter::install(filter.get_or_init(|| made))
    }
}
