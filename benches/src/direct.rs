// SPDX-License-Identifier: Apache-2.0
//! Runs a program on this machine itself, as the emulated host would: same options, same result.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;
use std::{fs, process};

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::command::{Command, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Finish, Stdin, Streams, exit_code};
use crate::error::Error;
use crate::host::HostOptions;

const NO_WATCH: &str = "cannot watch the program";

/// This machine, used as a host.
#[derive(Debug)]
pub struct DirectSession {
    /// Each drive's path and that of its scratch copy.
    drives: Vec<(PathBuf, PathBuf)>,
    /// Holds the copies; removed with the session.
    scratch: Option<TempDir>,
    control: DirectControl,
}

/// Reaches the program from another thread.
#[derive(Debug, Clone, Default)]
pub struct DirectControl {
    process: Arc<Mutex<Option<OwnedFd>>>,
    /// A signal that came before there was a program.
    early: Arc<AtomicI32>,
}

impl DirectSession {
    /// Makes a scratch copy of each drive, so that the file itself stays as it is, as in the emulated host.
    pub fn start(options: &HostOptions) -> Result<Self, Error> {
        let options = options.check()?;
        let mut session = Self { drives: Vec::new(), scratch: None, control: DirectControl::default() };
        if options.drives.is_empty() {
            return Ok(session);
        }
        // Beside the first drive: there is room for files of that size there, and a copy may share its blocks.
        let first = &options.drives[0];
        let beside = first.parent().unwrap_or(Path::new("/"));
        let named = tempfile::Builder::new().prefix("flatboot-drive-").tempdir_in(beside);
        let scratch = named.or_else(|_| tempfile::tempdir());
        let scratch = scratch.with_context(|| no_copy(first))?;
        for (n, drive) in options.drives.iter().enumerate() {
            let copy = scratch.path().join(n.to_string());
            sparse_copy(drive, &copy).with_context(|| no_copy(drive))?;
            session.drives.push((drive.clone(), copy));
        }
        session.scratch = Some(scratch);
        Ok(session)
    }

    /// Signals go this way while a program runs.
    #[must_use]
    pub fn control(&self) -> DirectControl {
        self.control.clone()
    }

    /// Runs a command to its end; what it writes goes to `streams` as it comes.
    pub fn run_streaming(&mut self, command: &Command, mut streams: Streams<'_>) -> Result<Finish, Error> {
        let deadline = command.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let mut child = match self.spawn(command, &streams.stdin) {
            Ok(child) => child,
            Err(error) => {
                let message = format!("flatboot-bench: {}: {error}\n", command.program.display());
                // Where the emulated host's message goes.
                let _ = streams.stderr.write_all(message.as_bytes());
                let not_found = error.kind() == io::ErrorKind::NotFound;
                let code = if not_found { EXIT_NOT_FOUND } else { EXIT_NOT_EXECUTABLE };
                return Ok(Finish { code });
            }
        };
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).context(NO_WATCH)?;
        self.control.begin(process.try_clone().context(NO_WATCH)?);
        feed(&mut child, &streams.stdin);
        let ended = follow(&mut child, &process, deadline, &mut streams);
        self.control.end();
        match ended {
            None => Err(Error::Timeout(command.timeout.unwrap_or_default())),
            Some(status) => Ok(Finish { code: exit_code(status) }),
        }
    }

    fn spawn(&self, command: &Command, stdin: &Stdin) -> io::Result<Child> {
        let mut process = process::Command::new(self.substituted(&command.program));
        process.args(command.args.iter().map(|arg| self.substituted(arg)));
        process.env_clear().envs(command.environment());
        if let Some(cwd) = &command.cwd {
            process.current_dir(cwd);
        }
        if matches!(stdin, Stdin::Terminal) {
            // The terminal, its signals included, is the program's own.
            return process.spawn();
        }
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        process.spawn()
    }

    /// `text` with every drive's path replaced by that of its copy.
    fn substituted(&self, text: &OsStr) -> OsString {
        let mut bytes = text.as_bytes().to_vec();
        for (path, copy) in &self.drives {
            bytes = replaced(&bytes, path.as_os_str().as_bytes(), copy.as_os_str().as_bytes());
        }
        OsString::from_vec(bytes)
    }
}

impl DirectControl {
    /// Sends `signal` to the program, or to the next one if none runs.
    pub fn signal(&self, signal: i32) {
        match (&*self.process.lock().unwrap_or_else(PoisonError::into_inner), Signal::from_named_raw(signal)) {
            (Some(process), Some(signal)) => {
                // A program that has just ended needs no signal.
                let _ = pidfd_send_signal(process, signal);
            }
            _ => self.early.store(signal, Ordering::SeqCst),
        }
    }

    /// Ends the program at once.
    pub fn kill(&self) {
        self.signal(Signal::KILL.as_raw());
    }

    fn begin(&self, process: OwnedFd) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        let early = self.early.swap(0, Ordering::SeqCst);
        if early != 0 {
            self.signal(early);
        }
    }

    fn end(&self) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Copies output until the program has ended; `None` if it had to be ended at the deadline.
fn follow(
    child: &mut Child,
    process: &OwnedFd,
    deadline: Option<Instant>,
    streams: &mut Streams<'_>,
) -> Option<ExitStatus> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).filter(|_| out.is_some());
    let Streams { stdout, stderr, .. } = streams;
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        let (out, err) = (out.map(OwnedFd::from), err.map(OwnedFd::from));
        scope.spawn(|| copy(out, &mut *stdout));
        scope.spawn(|| copy(err, &mut *stderr));
        scope.spawn(move || sender.send(child.wait()));
        let status = match deadline {
            None => ended.recv().ok(),
            Some(deadline) => ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok(),
        };
        // A program past its deadline is ended; what any program left behind would hold its output open.
        let _ = pidfd_send_signal(process, Signal::KILL);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        status.and_then(Result::ok)
    })
}

fn copy(from: Option<OwnedFd>, to: &mut (dyn Write + Send)) {
    let Some(from) = from else { return };
    let mut from = fs::File::from(from);
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n) = from.read(&mut buffer) {
        // Returning closes the pipe: the program gets the SIGPIPE that its reader's end means.
        if n == 0 || to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

fn feed(child: &mut Child, stdin: &Stdin) {
    let Some(mut pipe) = child.stdin.take() else { return };
    let stdin = stdin.clone();
    thread::spawn(move || {
        // An error means that the program takes no more.
        let _ = match stdin {
            Stdin::Null | Stdin::Terminal => Ok(()),
            Stdin::Bytes(bytes) => pipe.write_all(&bytes),
            Stdin::Inherit => io::copy(&mut io::stdin().lock(), &mut pipe).map(drop),
        };
    });
}

fn no_copy(drive: &Path) -> String {
    format!("{}: cannot copy it to a scratch file", drive.display())
}

/// cp(1) keeps holes and shares blocks where the file system can; std's copy does neither.
fn sparse_copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = process::Command::new("cp")
        .args(["--sparse=always", "--reflink=auto", "--"])
        .args([from, to])
        .stdin(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp: {status}"))) }
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = rest.windows(from.len()).position(|window| window == from) {
        result.extend_from_slice(&rest[..position]);
        result.extend_from_slice(to);
        rest = &rest[position + from.len()..];
    }
    result.extend_from_slice(rest);
    result
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn session() -> DirectSession {
        DirectSession::start(&HostOptions::default()).unwrap()
    }

    fn run(command: &Command, stdin: Stdin) -> (Result<Finish, Error>, Vec<u8>, Vec<u8>) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let streams = Streams { stdin, stdout: &mut stdout, stderr: &mut stderr };
        let finish = session().run_streaming(command, streams);
        (finish, stdout, stderr)
    }

    #[test]
    fn codes_streams_and_input() {
        let shell = Command::new("sh").args(["-c", "cat; echo err >&2; exit 7"]);
        let (finish, stdout, stderr) = run(&shell, Stdin::Bytes(b"in".to_vec()));
        assert_eq!((finish.unwrap().code, &stdout[..], &stderr[..]), (7, &b"in"[..], &b"err\n"[..]));
        let (finish, ..) = run(&Command::new("sh").args(["-c", "kill -9 $$"]), Stdin::Null);
        assert_eq!(finish.unwrap().code, 137);
        let (finish, _, stderr) = run(&Command::new("/nowhere/x"), Stdin::Null);
        assert_eq!(finish.unwrap().code, EXIT_NOT_FOUND);
        assert!(String::from_utf8_lossy(&stderr).contains("/nowhere/x"));
    }

    #[test]
    fn a_program_and_what_it_started_end_at_the_deadline() {
        let command = Command::new("sh").args(["-c", "sleep 1000 & sleep 1000"]).timeout(Duration::from_millis(200));
        let (finish, ..) = run(&command, Stdin::Null);
        assert!(matches!(finish, Err(Error::Timeout(_))));
    }

    #[test]
    fn the_drive_itself_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let drive = directory.path().join("disk.img");
        fs::write(&drive, "before").unwrap();
        let options = HostOptions { drives: vec![drive.clone()], ..HostOptions::default() };
        let mut session = DirectSession::start(&options).unwrap();
        let script = format!("of={}; test $(cat $of) = before && echo after >$of && cat $of", drive.display());
        let outcome = crate::Outcome::capture(|streams| {
            session.run_streaming(&Command::new("sh").args(["-c", &script]), streams)
        });
        assert_eq!(outcome.unwrap().stdout_text(), "after\n");
        drop(session);
        assert_eq!(fs::read_to_string(&drive).unwrap(), "before");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a scratch copy was left");
    }
}
