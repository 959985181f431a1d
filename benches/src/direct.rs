// SPDX-License-Identifier: Apache-2.0
//! Runs a program on this machine itself, as the emulated host would: same options, same result.

use std::cmp::Reverse;
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
use std::time::{Duration, Instant};
use std::{env, fs, process};

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::command::{Command, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, Finish, Stdin, Streams, exit_code};
use crate::error::Error;
use crate::host::HostOptions;

const NO_WATCH: &str = "cannot watch the program";
/// For how long what a program has left behind is still listened to.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// This machine, used as a host.
#[derive(Debug)]
pub struct DirectSession {
    /// The drives as they were asked for, absolute, and with no symbolic links.
    drives: Vec<[PathBuf; 3]>,
    /// Holds a copy of each, which has its number for a name; removed with the session.
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
        let (asked, options) = (options.drives.clone(), options.check()?);
        let mut session = Self { drives: Vec::new(), scratch: None, control: DirectControl::default() };
        // Beside the first drive: there is room for files of that size there, and a copy may share its blocks.
        let Some(first) = options.drives.first() else { return Ok(session) };
        let beside = first.parent().unwrap_or(Path::new("/"));
        let named = tempfile::Builder::new().prefix("flatboot-drive-").tempdir_in(beside);
        let scratch = named.or_else(|_| tempfile::tempdir());
        let scratch = scratch.with_context(|| no_copy(first))?;
        for (n, (drive, asked)) in options.drives.iter().zip(asked).enumerate() {
            sparse_copy(drive, &scratch.path().join(n.to_string())).with_context(|| no_copy(drive))?;
            let absolute = std::path::absolute(&asked).with_context(|| no_copy(drive))?;
            session.drives.push([asked, absolute, drive.clone()]);
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
        let names = self.names(command);
        self.check_named(command, &names)?;
        let deadline = command.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let mut child = match self.spawn(command, &names, &streams.stdin) {
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
        let ended = follow(&mut child, &process, deadline, &mut streams).context(NO_WATCH);
        self.control.end();
        match ended? {
            None => Err(Error::Timeout(command.timeout.unwrap_or_default())),
            Some(status) => Ok(Finish { code: exit_code(status) }),
        }
    }

    fn spawn(&self, command: &Command, names: &[Name], stdin: &Stdin) -> io::Result<Child> {
        let mut process = process::Command::new(self.substituted(&command.program, names));
        process.args(command.args.iter().map(|arg| self.substituted(arg, names)));
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

    /// The ways in which `command` may name drives, the longest first.
    fn names(&self, command: &Command) -> Vec<Name> {
        let cwd = command.cwd.clone().or_else(|| env::current_dir().ok()).and_then(|cwd| cwd.canonicalize().ok());
        let mut names = Vec::new();
        for (number, [asked, absolute, real]) in self.drives.iter().enumerate() {
            let inside = [absolute, real].map(|path| Some(path.strip_prefix(cwd.as_ref()?).ok()?.to_path_buf()));
            let asked = Some(asked.clone()).filter(|_| command.cwd.is_none() || asked.is_absolute());
            let relative = inside.into_iter().chain([asked]).flatten();
            let all = relative.flat_map(|path| [Path::new(".").join(&path), path]);
            names.extend(all.chain([absolute.clone(), real.clone()]).map(|path| (path.into_os_string(), number)));
        }
        names.sort_by_key(|(name, _)| Reverse(name.len()));
        names
    }

    /// Fails if no argument names a drive: nothing would take its place, and what is written to it would stay.
    fn check_named(&self, command: &Command, names: &[Name]) -> Result<(), Error> {
        for (number, [asked, ..]) in self.drives.iter().enumerate() {
            let mut own = names.iter().filter(|(_, of)| *of == number);
            if !own.any(|(name, _)| command.args.iter().any(|arg| find(arg.as_bytes(), name.as_bytes()).is_some())) {
                let must = "an argument of the program must name it, for a copy to take its place";
                return Err(anyhow!("--drive {}: {must}", asked.display()).into());
            }
        }
        Ok(())
    }

    /// `text` with every drive's name replaced by the path of its copy.
    fn substituted(&self, text: &OsStr, names: &[Name]) -> OsString {
        let Some(scratch) = &self.scratch else { return text.to_owned() };
        let mut bytes = text.as_bytes().to_vec();
        for (name, number) in names {
            let copy = scratch.path().join(number.to_string());
            bytes = replaced(&bytes, name.as_bytes(), copy.as_os_str().as_bytes());
        }
        OsString::from_vec(bytes)
    }
}

/// What a drive may be called, and its number.
type Name = (OsString, usize);

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
) -> io::Result<Option<ExitStatus>> {
    let (over, running) = pipe_with(PipeFlags::CLOEXEC)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).filter(|_| out.is_some());
    let Streams { stdout, stderr, .. } = streams;
    let (sender, ended) = mpsc::channel();
    thread::scope(|scope| {
        let (out, err) = (out.map(OwnedFd::from), err.map(OwnedFd::from));
        let over = &over;
        scope.spawn(move || copy(out, over, &mut **stdout));
        scope.spawn(move || copy(err, over, &mut **stderr));
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
        drop(running);
        Ok(status.and_then(Result::ok))
    })
}

/// Copies until the end of `from`; once `over` is closed, only what is there already, for what has left the program's group may
/// hold `from` open for ever.
fn copy(from: Option<OwnedFd>, over: &OwnedFd, to: &mut (dyn Write + Send)) {
    let Some(from) = from else { return };
    let mut from = fs::File::from(from);
    let (mut buffer, mut last) = (vec![0; 1 << 16], None);
    loop {
        let mut waiting = [PollFd::new(&from, PollFlags::IN), PollFd::new(over, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut waiting, None)).is_err() {
            return;
        }
        let [there, ended] = waiting.map(|one| !one.revents().is_empty());
        let last = ended.then(|| *last.get_or_insert_with(|| Instant::now() + DRAIN_LIMIT));
        if !there || last.is_some_and(|last| Instant::now() > last) {
            return;
        }
        // Returning closes the pipe: the program gets the SIGPIPE that its reader's end means.
        match from.read(&mut buffer) {
            Ok(n @ 1..) if to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_ok() => {}
            _ => return,
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

/// Where `text` has the path `name`, and not a longer one of which it is a part. One without a slash may be any word: it is a path
/// where it is all there is, or the value of a key for paths.
fn find(text: &[u8], name: &[u8]) -> Option<usize> {
    let goes_on = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(byte));
    let stands = |at: usize| {
        let (before, after) = (&text[..at], text.get(at + name.len()));
        if name.contains(&b'/') {
            return !goes_on(before.last()) && !goes_on(after);
        }
        let is_value = [b"path=", b"file="].iter().any(|key| before.ends_with(*key));
        (before.is_empty() || is_value) && after.is_none_or(|byte| *byte == b',')
    };
    (0..text.len()).find(|at| text[*at..].starts_with(name) && stands(*at))
}

fn replaced(text: &[u8], name: &[u8], by: &[u8]) -> Vec<u8> {
    let Some(at) = find(text, name) else { return text.to_vec() };
    let (before, rest) = (&text[..at], &text[at + name.len()..]);
    [before, by, &replaced(rest, name, by)].concat()
}

#[cfg(test)]
mod tests {
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
    fn what_has_left_the_group_is_not_waited_for() {
        let begun = Instant::now();
        let directory = tempfile::tempdir().unwrap();
        // It has left before the other one ends.
        let script = "setsid sh -c 'echo $$ >pid; exec sleep 1000' & until [ -s pid ]; do sleep 0.01; done; cat pid; echo done >&2";
        let command = Command { cwd: Some(directory.path().to_path_buf()), ..Command::new("sh").args(["-c", script]) };
        let (finish, stdout, stderr) = run(&command, Stdin::Null);
        assert_eq!((finish.unwrap().code, &stderr[..]), (0, &b"done\n"[..]));
        assert!(begun.elapsed() < Duration::from_secs(500));
        let left = String::from_utf8(stdout).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
        rustix::process::kill_process(left, Signal::KILL).unwrap();
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

    #[test]
    fn a_drive_is_known_by_every_name() {
        let directory = tempfile::tempdir().unwrap();
        let (drive, link) = (directory.path().join("disk.img"), directory.path().join("link"));
        fs::write(&drive, "").unwrap();
        std::os::unix::fs::symlink(&drive, &link).unwrap();
        let options = HostOptions { drives: vec![link.clone()], ..HostOptions::default() };
        let mut session = DirectSession::start(&options).unwrap();
        let copy = session.scratch.as_ref().unwrap().path().join("0").display().to_string();
        let there = Command { cwd: Some(directory.path().to_path_buf()), ..Command::new("true") };
        let names = session.names(&there);
        let with = |text: &str| session.substituted(OsStr::new(text), &names).into_string().unwrap();
        for name in [drive.to_str().unwrap(), link.to_str().unwrap(), "./disk.img", "link", "disk.img"] {
            assert_eq!(with(&format!("path={name},id=a")), format!("path={copy},id=a"));
            let another = format!("path={name}.bak");
            assert_eq!(with(&another), another, "of another file");
        }
        for other in ["id=link", "link=/dev/vda", "a link"] {
            assert_eq!(with(other), other, "a word that is no path");
        }
        let streams = Streams { stdin: Stdin::Null, stdout: &mut io::sink(), stderr: &mut io::sink() };
        let unnamed = session.run_streaming(&Command::new("true").arg("disk.img"), streams).unwrap_err();
        assert!(unnamed.to_string().contains("must name it"), "{unnamed}");
    }
}
