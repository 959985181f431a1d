// SPDX-License-Identifier: Apache-2.0
//! A host's life: launched, ready, running one command after another, gone when dropped.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use tempfile::TempDir;

use super::HostOptions;
use super::console::Console;
use super::machine::{self, Killer, Machine};
use super::memory::Lent;
use super::qemu::{self, Files};
use super::terminal::{NO_TERMINAL, RawTerminal};
use crate::command::{Command, Finish, Outcome, Stdin, Streams};
use crate::error::{ConsoleEnd, Error};
use crate::protocol::{self, Frame, Kind, Order, Report, Setup, Size, Start};
use crate::{artifact, initramfs};

/// How long QEMU may take to be reaped once its sockets are closed.
const REAP_LIMIT: Duration = Duration::from_secs(5);
/// How long after its limit what a program has written before is still taken.
const LATE: Duration = Duration::from_secs(10);
const SIGPIPE: i32 = 13;
/// The connection broke or carried nonsense.
const NO_CONNECTION: &str = "the connection to the emulated host's init failed";

/// A host whose QEMU has been started and whose init has not answered yet.
#[derive(Debug)]
pub struct Launched {
    options: HostOptions,
    host: HostSession,
    deadline: Instant,
    /// Sockets, initramfs, log: once the init answers nobody needs their names, and a killed caller leaves nothing.
    directory: TempDir,
}

/// A running host.
#[derive(Debug)]
pub struct HostSession {
    // Dropped first: the host is gone before its log is.
    machine: Machine,
    control: Control,
    stdin: Arc<UnixStream>,
    frames: mpsc::Receiver<io::Result<Frame>>,
    console: Console,
    messages: File,
}

/// Reaches the program inside from another thread.
#[derive(Debug, Clone)]
pub struct Control {
    stream: Arc<Mutex<UnixStream>>,
    /// Number of the command that runs, 0 for none.
    running: Arc<AtomicU32>,
    last: Arc<AtomicU32>,
    killer: Killer,
}

impl HostSession {
    /// Starts a host and waits until programs can run in it.
    pub fn start(options: &HostOptions) -> Result<Self, Error> {
        Self::launch(options)?.ready()
    }

    /// Starts a host without waiting, so that the caller can end it while it starts.
    pub fn launch(options: &HostOptions) -> Result<Launched, Error> {
        let options = options.check()?;
        let kernel = artifact::host_kernel(options.kernel.as_deref())?;
        let initramfs = initramfs::host()?;
        let directory = runtime_directory()?;
        let no_directory = || no_directory(directory.path());
        let file = |name: &str| directory.path().join(name);
        let mib = options.memory_mib;
        let no_memory = || format!("the emulated host's memory: cannot make a file of {mib} MiB for it");
        let memory = Lent::take(mib).with_context(no_memory)?;
        let files = Files {
            memory: memory.path(),
            kernel,
            initramfs: file("initramfs"),
            console: file("console"),
            control: file("control"),
            stdin: file("stdin"),
        };
        std::fs::write(&files.initramfs, initramfs).with_context(no_directory)?;
        let console = Console::create(&files.console).with_context(no_directory)?;
        let messages = File::options().read(true).append(true).create_new(true).open(file("messages"));
        let messages = messages.with_context(no_directory)?;
        let control = UnixListener::bind(&files.control).with_context(no_directory)?;
        let stdin = UnixListener::bind(&files.stdin).with_context(no_directory)?;

        let deadline = Instant::now() + options.start_limit;
        let copy = messages.try_clone().with_context(no_directory)?;
        let machine = Machine::start(qemu::arguments(&options, &files), memory, copy)
            .context("qemu-system-x86_64: cannot start it (Debian: apt-get install qemu-system-x86)")?;
        let mut unconnected = Unconnected { machine, console, messages };
        let control = unconnected.accept(&control, &options, deadline)?;
        let stdin = unconnected.accept(&stdin, &options, deadline)?;
        let host = unconnected.connect(control, stdin).context(NO_CONNECTION)?;
        Ok(Launched { options, host, deadline, directory })
    }

    /// Signals and terminal sizes go this way while [`HostSession::run_streaming`] runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Runs a command to its end and keeps what it writes.
    pub fn run(&mut self, command: &Command) -> Result<Outcome, Error> {
        Outcome::capture(|streams| self.run_streaming(command, streams))
    }

    /// Runs a command to its end; what it writes goes to `streams` as it comes.
    ///
    /// After an error the host is of no more use: the next command gets an error as well. With [`Stdin::Inherit`] a
    /// thread may stay that waits for this process's input.
    pub fn run_streaming(&mut self, command: &Command, streams: Streams<'_>) -> Result<Finish, Error> {
        let deadline = command.timeout.and_then(|limit| Instant::now().checked_add(limit));
        let cwd = command.cwd.clone().map_or_else(std::env::current_dir, Ok);
        let cwd = cwd.context("the working directory is gone: must be one that is there (--cwd)")?;
        let terminal = match streams.stdin {
            Stdin::Terminal => Some(RawTerminal::enter().context(NO_TERMINAL)?),
            _ => None,
        };
        let start = Start {
            program: command.program.clone(),
            args: command.args.clone(),
            env: command.environment(),
            cwd,
            terminal: terminal.as_ref().map(RawTerminal::size),
        };
        let Ok(sequence) = self.control.start(start) else { return Err(self.ended()) };
        self.feed(streams.stdin, sequence);
        let result = self.follow(sequence, deadline, streams.stdout, streams.stderr);
        self.control.running.store(0, Ordering::SeqCst);
        result.map_err(|error| match (error, command.timeout) {
            (Failure::Error(error), _) => error,
            (Failure::Ended, _) => self.ended(),
            (Failure::Timeout, limit) => {
                self.machine.killer().kill();
                Error::Timeout(limit.unwrap_or_default())
            }
        })
    }

    /// Copies output and waits for the exit report of command `sequence`.
    fn follow(
        &mut self,
        sequence: u32,
        deadline: Option<Instant>,
        stdout: &mut dyn Write,
        stderr: &mut dyn Write,
    ) -> Result<Finish, Failure> {
        let (mut stdout, mut stderr) = (Sink::new(stdout), Sink::new(stderr));
        loop {
            let frame = next_frame(&self.frames, deadline)?;
            if frame.sequence != sequence {
                continue;
            }
            let delivered = match frame.kind {
                Kind::Stdout => stdout.write(&frame.body),
                Kind::Stderr => stderr.write(&frame.body),
                Kind::Stdin => true,
                Kind::Message => match frame.message::<Report>().map_err(connection)? {
                    Report::Exit(exit) => return Ok(Finish { code: exit.code }),
                    Report::Failed(what) => return Err(Failure::Error(anyhow!("the emulated host: {what}").into())),
                    Report::Ready(_) | Report::SetUp => true,
                },
            };
            if !delivered {
                // As the kernel does to a program whose reader is gone. A host that is gone too is noticed above.
                let _ = self.control.send(&Order::Signal(SIGPIPE), sequence);
            }
        }
    }

    /// Sends input from a thread of its own: a program may never read it.
    fn feed(&self, stdin: Stdin, sequence: u32) {
        let port = Arc::clone(&self.stdin);
        let send = move |bytes: &[u8]| protocol::write_frame(&*port, Kind::Stdin, sequence, bytes);
        let pump = move || -> io::Result<()> {
            match stdin {
                Stdin::Null => {}
                Stdin::Bytes(bytes) => bytes.chunks(protocol::CHUNK).try_for_each(&send)?,
                Stdin::Inherit | Stdin::Terminal => {
                    let mut input = io::stdin().lock();
                    let mut buffer = vec![0; protocol::CHUNK];
                    loop {
                        match input.read(&mut buffer)? {
                            0 => break,
                            n => send(&buffer[..n])?,
                        }
                    }
                }
            }
            send(&[])
        };
        // An error means that the host is gone, which the caller learns from the control port.
        thread::spawn(move || drop(pump()));
    }

    /// Why the host is gone.
    fn ended(&mut self) -> Error {
        // A broken connection with QEMU still running is a host of no use, too.
        let status = self.machine.wait(Duration::from_millis(500));
        self.machine.killer().kill();
        if let Some(signal) = self.machine.killer().because_of() {
            return Error::Killed(signal);
        }
        let status = status.or_else(|| self.machine.wait(REAP_LIMIT));
        let otherwise = status.map_or_else(|| "it closed the connection".to_owned(), machine::describe);
        Error::Ended(console_end(&mut self.console, &mut self.messages, otherwise))
    }
}

impl Launched {
    /// Ends the host while it starts.
    #[must_use]
    pub fn control(&self) -> Control {
        self.host.control()
    }

    /// Waits until programs can run.
    pub fn ready(mut self) -> Result<HostSession, Error> {
        let result = self.set_up();
        match result {
            Ok(()) => Ok(self.host),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Ended) => Err(self.host.ended()),
            Err(Failure::Timeout) => {
                let end = console_end(&mut self.host.console, &mut self.host.messages, "no answer".to_owned());
                Err(Error::StartTimeout { limit: self.options.start_limit, end })
            }
        }
    }

    fn set_up(&mut self) -> Result<(), Failure> {
        let named = |tag: fn(usize) -> String, paths: &[std::path::PathBuf]| {
            paths.iter().enumerate().map(|(n, path)| (tag(n), path.clone())).collect()
        };
        let setup = Setup {
            writable: named(qemu::share_tag, &self.options.writable),
            drives: named(qemu::drive_serial, &self.options.drives),
        };
        self.host.control.send(&Order::Setup(setup), 0).map_err(|_| Failure::Ended)?;
        loop {
            let frame = next_frame(&self.host.frames, Some(self.deadline))?;
            match frame.message::<Report>().map_err(connection)? {
                Report::Ready(protocol::VERSION) => remove(&self.directory),
                Report::Ready(theirs) => {
                    let error = anyhow!(
                        "host-init speaks version {theirs}, flatboot-bench version {}: build both together",
                        protocol::VERSION
                    );
                    return Err(Failure::Error(error.into()));
                }
                Report::SetUp => return Ok(()),
                Report::Failed(what) => return Err(Failure::Error(anyhow!("the emulated host: {what}").into())),
                Report::Exit(_) => {}
            }
        }
    }
}

/// QEMU has read the images and connected the sockets by the time the init runs.
fn remove(directory: &TempDir) {
    // What cannot be removed now is removed, or reported, when the TempDir is dropped.
    let _ = std::fs::remove_dir_all(directory.path());
}

impl Control {
    /// Sends `signal` to the program; ends the host if none runs.
    pub fn signal(&self, signal: i32) {
        let sequence = self.running.load(Ordering::SeqCst);
        if sequence == 0 || self.send(&Order::Signal(signal), sequence).is_err() {
            self.killer.kill_for(signal);
        }
    }

    /// Ends the host at once, on behalf of `signal`.
    pub fn kill_host(&self, signal: i32) {
        self.killer.kill_for(signal);
    }

    /// Tells the program its terminal's size.
    pub fn resize(&self, size: Size) {
        // A lost size is no reason to end anything.
        let _ = self.send(&Order::Resize(size), self.running.load(Ordering::SeqCst));
    }

    /// Starts the next command. A signal that comes meanwhile goes behind the order, or the host's init would not know for what.
    fn start(&self, start: Start) -> io::Result<u32> {
        let mut stream = lock(&self.stream);
        let sequence = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.running.store(sequence, Ordering::SeqCst);
        protocol::write_message(&mut *stream, sequence, &Order::Start(start))?;
        Ok(sequence)
    }

    fn send(&self, order: &Order, sequence: u32) -> io::Result<()> {
        protocol::write_message(&mut *lock(&self.stream), sequence, order)
    }
}

/// A host before its sockets are connected.
struct Unconnected {
    machine: Machine,
    console: Console,
    messages: File,
}

impl Unconnected {
    /// QEMU connects while it reads its command line, so this takes milliseconds or QEMU has ended.
    fn accept(
        &mut self,
        listener: &UnixListener,
        options: &HostOptions,
        deadline: Instant,
    ) -> Result<UnixStream, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let process = self.machine.killer().process();
        let mut waiting =
            [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN), PollFd::new(&process, PollFlags::IN)];
        let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
        retry_on_intr(|| poll(&mut waiting, Some(&timeout))).context(NO_CONNECTION)?;
        if !waiting[0].revents().is_empty() {
            return Ok(listener.accept().context(NO_CONNECTION)?.0);
        }
        if !waiting[1].revents().is_empty() {
            let otherwise = self.machine.wait(REAP_LIMIT).map_or_else(String::new, machine::describe);
            return Err(Error::Ended(console_end(&mut self.console, &mut self.messages, otherwise)));
        }
        let end = console_end(&mut self.console, &mut self.messages, "no answer from QEMU".to_owned());
        Err(Error::StartTimeout { limit: options.start_limit, end })
    }

    fn connect(self, control: UnixStream, stdin: UnixStream) -> io::Result<HostSession> {
        let mut reader = io::BufReader::with_capacity(1 << 18, control.try_clone()?);
        // Bounded: a program that writes faster than the caller reads is held up, not buffered.
        let (sender, frames) = mpsc::sync_channel(16);
        thread::Builder::new().name("host reports".into()).spawn(move || {
            while let Some(frame) = protocol::read_frame(&mut reader).transpose() {
                let last = frame.is_err();
                if sender.send(frame).is_err() || last {
                    break;
                }
            }
        })?;
        let control = Control {
            stream: Arc::new(Mutex::new(control)),
            running: Arc::default(),
            last: Arc::default(),
            killer: self.machine.killer().clone(),
        };
        let Self { machine, console, messages } = self;
        Ok(HostSession { machine, control, stdin: Arc::new(stdin), frames, console, messages })
    }
}

enum Failure {
    Error(Error),
    Ended,
    Timeout,
}

fn connection(error: io::Error) -> Failure {
    Failure::Error(anyhow::Error::new(error).context(NO_CONNECTION).into())
}

fn next_frame(frames: &mpsc::Receiver<io::Result<Frame>>, deadline: Option<Instant>) -> Result<Frame, Failure> {
    if deadline.is_some_and(|deadline| Instant::now() > deadline + LATE) {
        return Err(Failure::Timeout);
    }
    let received = match deadline {
        None => frames.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(deadline) => frames.recv_timeout(deadline.saturating_duration_since(Instant::now())),
    };
    match received {
        Ok(Ok(frame)) => Ok(frame),
        Ok(Err(e)) if e.kind() == io::ErrorKind::InvalidData => Err(connection(e)),
        Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => Err(Failure::Ended),
        Err(RecvTimeoutError::Timeout) => Err(Failure::Timeout),
    }
}

/// A reader that may go away.
struct Sink<'a> {
    writer: Option<&'a mut dyn Write>,
}

impl<'a> Sink<'a> {
    fn new(writer: &'a mut dyn Write) -> Self {
        Self { writer: Some(writer) }
    }

    /// False once, when the reader turns out to be gone; what comes after that is dropped.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(writer) = &mut self.writer else { return true };
        let delivered = writer.write_all(bytes).and_then(|()| writer.flush()).is_ok();
        if !delivered {
            self.writer = None;
        }
        delivered
    }
}

/// QEMU's own words come before "QEMU ended", the kernel's before both.
fn console_end(console: &mut Console, messages: &mut File, otherwise: String) -> ConsoleEnd {
    use std::io::Seek;
    let mut text = String::new();
    let read = messages.rewind().and_then(|()| messages.take(1 << 16).read_to_string(&mut text));
    let said = text.lines().rev().find(|line| !line.trim().is_empty() && !line.contains("warning:"));
    let otherwise = match (read, said) {
        (Ok(_), Some(said)) => format!("{otherwise} ({})", said.trim()),
        _ => otherwise,
    };
    console.end(otherwise)
}

/// A new directory whose socket paths fit in the 108 bytes that the kernel allows.
fn runtime_directory() -> Result<TempDir, Error> {
    let preferred = std::env::temp_dir();
    let parent = if preferred.as_os_str().len() <= 64 { preferred.as_path() } else { Path::new("/tmp") };
    let made = tempfile::Builder::new().prefix("flatboot-host-").tempdir_in(parent);
    Ok(made.with_context(|| no_directory(parent))?)
}

fn no_directory(parent: &Path) -> String {
    format!("{}: cannot make the emulated host's directory there", parent.display())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
