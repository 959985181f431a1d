// SPDX-License-Identifier: Apache-2.0
//! What the tests share: the artifacts, a directory to write to, and one host.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use flatboot_bench::guest::{Ended, Guest};
use flatboot_bench::{Backend, Command, Error as HostError, HostOptions, Kvm, Outcome, Session, artifact, initramfs};
use libtest_mimic::{Completion, Failed, Trial};
use tempfile::TempDir;

/// Artifacts and a running host.
#[derive(Debug)]
pub(crate) struct Lab {
    /// The flatboot binary.
    pub(crate) flatboot: PathBuf,
    /// Directory of the guest kernel: `vmlinux`, `bzImage`.
    pub(crate) kernel: PathBuf,
    /// The tiny initramfs.
    pub(crate) initramfs: PathBuf,
    /// Writable by guests' VMMs, at the same path on every host.
    pub(crate) scratch: TempDir,
    backend: Backend,
    session: Mutex<Option<Session>>,
    firmware: OnceLock<PathBuf>,
}

static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();

impl Lab {
    /// The one lab, set up at first use.
    pub(crate) fn get() -> Result<&'static Self, Failed> {
        let lab = LAB.get_or_init(|| Self::set_up().map_err(|error| error.message().unwrap_or("no lab").to_owned()));
        lab.as_ref().map_err(Failed::from)
    }

    /// Ends the host and removes the directory, which no destructor of a static does.
    pub(crate) fn close() {
        if let Some(Ok(lab)) = LAB.get() {
            drop(lab.session.lock().unwrap_or_else(PoisonError::into_inner).take());
            // What cannot be removed is left in the directory for temporary files.
            let _ = std::fs::remove_dir_all(lab.scratch.path());
        }
    }

    fn set_up() -> Result<Self, Failed> {
        let flatboot = artifact::flatboot(None).ok_or("no flatboot binary: cargo build --release")?;
        let kernel = artifact::kernel("guest")?;
        let scratch = tempfile::tempdir()?;
        let initramfs = scratch.path().join("tiny.cpio");
        initramfs::write_guest(&initramfs)?;
        let backend = Backend::open(Some(&flatboot))?;
        println!("{backend}");
        Ok(Self { flatboot, kernel, initramfs, scratch, backend, session: Mutex::new(None), firmware: OnceLock::new() })
    }

    /// A path in the scratch directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The UEFI firmware's image, built or looked for once.
    pub(crate) fn firmware(&self) -> Result<&Path, Failed> {
        if let Some(found) = self.firmware.get() {
            return Ok(found);
        }
        let built = artifact::firmware()?;
        Ok(self.firmware.get_or_init(|| built))
    }

    /// Whether the guest kernel has `option`, built in or as a module.
    pub(crate) fn kernel_has(&self, option: &str) -> Result<bool, Failed> {
        let config = std::fs::read_to_string(self.kernel.join("config"))?;
        Ok(config
            .lines()
            .any(|line| line.split_once('=').is_some_and(|(name, is)| name == option && "ym".contains(is))))
    }

    /// The patched kernel with the tiny initramfs.
    pub(crate) fn guest(&self) -> Guest {
        Guest::new(&self.kernel.join("vmlinux"), &self.initramfs)
    }

    /// Runs `guest` to its end. An emulated processor is not a real one: if KVM gives up on it there, which is said, the guest
    /// gets a second chance on a fresh host.
    pub(crate) fn run(&self, guest: &Guest) -> Result<Ended, Failed> {
        let run = || self.with_session(|session| guest.run(session, &self.flatboot));
        let ended = run()?;
        match gave_up(&ended) {
            Some(line) if self.is_emulated() => {
                eprintln!("AGAIN: the emulated host's KVM has given up on {:?}: {line}", guest.checks);
                drop(self.session.lock().unwrap_or_else(PoisonError::into_inner).take());
                Ok(run()?)
            }
            _ => Ok(ended),
        }
    }

    /// Runs any program on the host.
    pub(crate) fn shell(&self, script: &str) -> Result<Outcome, Failed> {
        self.shell_for(script, LIMIT)
    }

    /// The same, at most so long.
    pub(crate) fn shell_for(&self, script: &str, limit: Duration) -> Result<Outcome, Failed> {
        let command = Command::new("/bin/sh").args(["-c", script]).timeout(limit);
        Ok(self.with_session(|session| session.run(&command))?)
    }

    /// Runs a program on a host of its own.
    pub(crate) fn on_host(&self, options: HostOptions, command: &Command) -> Result<Outcome, Failed> {
        let writable = vec![self.scratch.path().to_path_buf()];
        Ok(self.backend.run(&HostOptions { writable, kernel: self.backend.host_kernel()?, ..options }, command)?)
    }

    /// Runs `guest` and requires that it passed all its checks and powered off.
    pub(crate) fn passes(&self, guest: &Guest) -> Result<Ended, Failed> {
        let ended = self.run(guest)?;
        if ended.passed() { Ok(ended) } else { Err(self.describe(guest, &ended)) }
    }

    /// Runs `guest` and requires that flatboot exits with `code` and says `words` in its last line.
    pub(crate) fn ends(&self, guest: &Guest, code: u8, words: &str) -> Result<Ended, Failed> {
        let ended = self.run(guest)?;
        let stderr = String::from_utf8_lossy(&ended.outcome.stderr).into_owned();
        if ended.outcome.code == code && stderr.lines().last().is_some_and(|line| line.contains(words)) {
            return Ok(ended);
        }
        let wanted = format!("expected exit code {code} and {words:?}\n");
        Err((wanted + self.describe(guest, &ended).message().unwrap_or_default()).into())
    }

    /// Whether guests run in the emulated KVM host.
    pub(crate) fn is_emulated(&self) -> bool {
        self.backend.kvm() == Kvm::Emulated
    }

    /// The command line and the last lines of what a guest and its VMM said.
    pub(crate) fn describe(&self, guest: &Guest, ended: &Ended) -> Failed {
        describe(guest, ended, &self.flatboot)
    }

    /// A host that failed is replaced at the next use.
    pub(crate) fn with_session<T, E: From<HostError>>(
        &self,
        run: impl FnOnce(&mut Session) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut held = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let mut session = if let Some(session) = held.take() {
            session
        } else {
            let writable = vec![self.scratch.path().to_path_buf()];
            let kernel = self.backend.host_kernel().map_err(HostError::from)?;
            self.backend.start(&HostOptions { writable, kernel, ..HostOptions::default() })?
        };
        let result = run(&mut session);
        if result.is_ok() {
            *held = Some(session);
        }
        result
    }
}

/// What takes half a minute may take ten where the machine is busy with something else.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// `script` in a directory of the host's memory, which is gone when it ends, whatever ends it. `end` comes before that: what it
/// cannot do is not there to be done.
pub(crate) fn in_memory(end: &str, script: &str) -> String {
    format!(
        "set -e; PATH=$PATH:/usr/sbin:/sbin; cd \"$(mktemp -d -p /dev/shm)\"\n\
         trap '{{ {end}; }} 2>/dev/null || :; rm -rf \"$PWD\"' EXIT\n\
         {script}"
    )
}

/// What flatboot says if KVM itself has failed.
fn gave_up(ended: &Ended) -> Option<String> {
    let said = String::from_utf8_lossy(&ended.outcome.stderr);
    said.lines().find(|line| line.contains("KVM cannot go on") && line.contains("internal error")).map(str::to_owned)
}

fn describe(guest: &Guest, ended: &Ended, flatboot: &Path) -> Failed {
    let tail = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    };
    format!(
        "exit code {}\ncommand: {:?}\n--- console\n{}\n--- stderr\n{}\n--- complaint\n{}",
        ended.outcome.code,
        guest.command(flatboot).args,
        tail(&ended.outcome.stdout),
        tail(&ended.outcome.stderr),
        ended.complaint().unwrap_or_default()
    )
    .into()
}

/// A test that only the emulated host can run, and why.
pub(crate) fn on_emulated_host(name: &'static str, why: &'static str, body: fn(&Lab) -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || {
        let lab = Lab::get()?;
        if !lab.is_emulated() {
            return Ok(Completion::ignored_with(why));
        }
        body(lab).map(|()| Completion::Completed)
    })
}

/// Fails with `what` unless `holds`.
pub(crate) fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}
