// SPDX-License-Identifier: Apache-2.0
//! One program: started in a cgroup of its own, its output copied, its end reported.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use flatboot_bench::command::exit_code;
use flatboot_bench::protocol::{CHUNK, Exit, Kind, Report, Size, Start};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::mounts::CGROUPS;
use crate::session::{Current, Session};

/// How long output is waited for after all writers should be dead.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// A started program.
struct Running {
    child: Child,
    cgroup: PathBuf,
    /// What it writes, by kind.
    outputs: Vec<(Kind, File)>,
}

/// Starts the program; a thread reports its output and its end. An error means that flatboot-bench is gone.
pub(crate) fn start(session: &Arc<Session>, sequence: u32, start: Start) -> io::Result<()> {
    match launch(sequence, start) {
        Err(error) => {
            // Leaves no input waiting for a command that never came to be.
            session.begin(Current { sequence, ..Current::default() });
            session.report(sequence, &Report::Failed(format!("cannot start a process: {error}")))
        }
        Ok((running, current)) => {
            session.begin(current);
            let session = Arc::clone(session);
            thread::spawn(move || running.follow(&session, sequence));
            Ok(())
        }
    }
}

fn launch(sequence: u32, start: Start) -> io::Result<(Running, Current)> {
    let cgroup = PathBuf::from(CGROUPS).join(sequence.to_string());
    fs::create_dir(&cgroup)?;
    let mut enter = Command::new("/proc/self/exe");
    let terminal = OsString::from(if start.terminal.is_some() { "1" } else { "0" });
    enter.arg("enter").args([cgroup.clone().into(), start.cwd.into_os_string(), terminal, start.program]);
    enter.args(start.args).env_clear().envs(start.env);
    let master = if let Some(size) = start.terminal {
        let (master, slave) = terminal_pair(size)?;
        enter.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        Some(Arc::new(master))
    } else {
        enter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        None
    };
    let mut child = enter.spawn()?;
    // It holds the terminal's other side, whose last close is the end of the output.
    drop(enter);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let file = |fd: OwnedFd| File::from(fd);
    let mut outputs: Vec<(Kind, File)> = Vec::new();
    outputs.extend(child.stdout.take().map(|fd| (Kind::Stdout, file(fd.into()))));
    outputs.extend(child.stderr.take().map(|fd| (Kind::Stderr, file(fd.into()))));
    let input = match &master {
        Some(master) => {
            outputs.push((Kind::Stdout, master.try_clone()?));
            Some(Arc::clone(master))
        }
        None => child.stdin.take().map(|fd| Arc::new(file(fd.into()))),
    };
    Ok((
        Running { child, cgroup, outputs },
        Current { sequence, process: Some(process), stdin: input, terminal: master },
    ))
}

impl Running {
    fn follow(mut self, session: &Arc<Session>, sequence: u32) {
        let (done, finished) = mpsc::channel();
        let copies = self.outputs.len();
        for (kind, from) in self.outputs.drain(..) {
            let (session, done) = (Arc::clone(session), done.clone());
            thread::spawn(move || {
                copy(&session, kind, sequence, from);
                // Nobody waits any more after the drain limit.
                let _ = done.send(());
            });
        }
        let status = self.child.wait();
        // As a container ends with its first process: what it left behind would hold its output open.
        let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
        let deadline = Instant::now() + DRAIN_LIMIT;
        for _ in 0..copies {
            let left = deadline.saturating_duration_since(Instant::now());
            if finished.recv_timeout(left).is_err() {
                eprintln!("host-init: command {sequence}: its output is still open {DRAIN_LIMIT:?} after its end");
            }
        }
        {
            let mut current = session.current();
            if current.sequence == sequence {
                *current = Current { sequence, ..Current::default() };
            }
        }
        // Fails while a killed process is not reaped yet; an empty cgroup costs little.
        let _ = fs::remove_dir(&self.cgroup);
        let report = match status {
            Ok(status) => Report::Exit(Exit { code: exit_code(status) }),
            Err(error) => Report::Failed(format!("cannot wait for the program: {error}")),
        };
        // flatboot-bench is gone: the agent's main thread notices.
        let _ = session.report(sequence, &report);
    }
}

fn copy(session: &Session, kind: Kind, sequence: u32, mut from: File) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // A terminal's end is EIO.
            Ok(0) | Err(_) => return,
            Ok(n) => {
                if session.output(kind, sequence, &buffer[..n]).is_err() {
                    return;
                }
            }
        }
    }
}

/// A new terminal in the programs' devpts: the side to read and write here, and the program's side.
fn terminal_pair(size: Size) -> io::Result<(File, OwnedFd)> {
    let master = File::options().read(true).write(true).open("/dev/pts/ptmx")?;
    unlockpt(&master)?;
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size)?;
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    Ok((master, slave))
}
