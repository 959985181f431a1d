// SPDX-License-Identifier: Apache-2.0
//! One program: started in a cgroup of its own, its output copied, its end reported.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use flatboot_bench::command::exit_code;
use flatboot_bench::protocol::{CHUNK, Exit, Kind, Report, Size, Start};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::mounts::CGROUPS;
use crate::session::{Current, Session};

/// How long output is waited for after all writers should be dead. What flatboot-bench takes its time to read does not count.
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
    launch_in(&cgroup, sequence, start).inspect_err(|_| drop(fs::remove_dir(&cgroup)))
}

fn launch_in(cgroup: &Path, sequence: u32, start: Start) -> io::Result<(Running, Current)> {
    let mut enter = Command::new("/proc/self/exe");
    let terminal = OsString::from(if start.terminal.is_some() { "1" } else { "0" });
    enter.arg("enter").args([cgroup.into(), start.cwd.into_os_string(), terminal, start.program]);
    enter.args(start.args).env_clear().envs(start.env);
    let mut outputs: Vec<(Kind, File)> = Vec::new();
    let master = if let Some(size) = start.terminal {
        let (master, slave) = terminal_pair(size)?;
        enter.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        outputs.push((Kind::Stdout, master.try_clone()?));
        Some(Arc::new(master))
    } else {
        enter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        None
    };
    let mut child = enter.spawn()?;
    // It holds the terminal's other side, whose last close is the end of the output.
    drop(enter);
    let process = match watched(&child) {
        Ok(process) => process,
        Err(error) => {
            // Nobody could end it any more.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(error);
        }
    };
    let file = |fd: OwnedFd| File::from(fd);
    outputs.extend(child.stdout.take().map(|fd| (Kind::Stdout, file(fd.into()))));
    outputs.extend(child.stderr.take().map(|fd| (Kind::Stderr, file(fd.into()))));
    let input = master.clone().or_else(|| child.stdin.take().map(|fd| Arc::new(file(fd.into()))));
    Ok((
        Running { child, cgroup: cgroup.to_owned(), outputs },
        Current { sequence, process: Some(process), stdin: input, terminal: master },
    ))
}

fn watched(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

impl Running {
    fn follow(mut self, session: &Arc<Session>, sequence: u32) {
        let (done, finished) = mpsc::channel();
        let (mut copies, writing) = (self.outputs.len(), Arc::new(AtomicUsize::new(0)));
        for (kind, from) in self.outputs.drain(..) {
            let (session, done, writing) = (Arc::clone(session), done.clone(), Arc::clone(&writing));
            thread::spawn(move || {
                copy(&session, kind, sequence, from, &writing);
                // Nobody waits any more after the drain limit.
                let _ = done.send(());
            });
        }
        let status = self.child.wait();
        // As a container ends with its first process: what it left behind would hold its output open.
        let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
        while copies > 0 {
            match finished.recv_timeout(DRAIN_LIMIT) {
                Ok(()) => copies -= 1,
                Err(_) if writing.load(Ordering::SeqCst) > 0 => {}
                Err(_) => {
                    eprintln!("host-init: command {sequence}: its output is still open {DRAIN_LIMIT:?} after its end");
                    break;
                }
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

/// Copies until the end of `from`; `writing` counts those who wait for flatboot-bench to read.
fn copy(session: &Session, kind: Kind, sequence: u32, mut from: File, writing: &AtomicUsize) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // A terminal's end is EIO.
            Ok(0) | Err(_) => return,
            Ok(n) => {
                writing.fetch_add(1, Ordering::SeqCst);
                let written = session.output(kind, sequence, &buffer[..n]);
                writing.fetch_sub(1, Ordering::SeqCst);
                if written.is_err() {
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
