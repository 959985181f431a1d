// SPDX-License-Identifier: Apache-2.0
//! A pseudo terminal: whoever opens its path is at the guest's console, by any terminal program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::pty::{grantpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::{Source, Terminal, has_hung_up};

/// The master side.
#[derive(Debug)]
pub struct Pty {
    master: File,
    /// The same once more: to be watched for room.
    room: File,
    path: PathBuf,
}

impl Pty {
    /// A new one, which passes everything as it is.
    pub fn new() -> io::Result<Self> {
        let open = |path: &Path| {
            let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
            File::options().read(true).write(true).custom_flags(flags).open(path)
        };
        let master = open(Path::new("/dev/ptmx"))?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let path = PathBuf::from(ptsname(&master, Vec::new())?.into_string().map_err(io::Error::other)?);
        let mut mode = tcgetattr(&master)?;
        mode.make_raw();
        tcsetattr(&master, OptionalActions::Now, &mode)?;
        // Until the other side has been closed once, it looks as if somebody were there.
        drop(open(&path)?);
        let room = master.try_clone()?;
        Ok(Self { master, room, path })
    }

    /// What others open.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether somebody has it open.
    fn is_open(&self) -> bool {
        !has_hung_up(&self.master)
    }
}

impl Terminal for Pty {
    fn sources(&self, receive: usize, send: usize) -> [Source; 2] {
        [Source::readable(self.master.as_raw_fd(), receive), Source::writable(self.room.as_raw_fd(), send)]
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.master.read(bytes) {
            // Nobody is there any more (EIO), or not yet.
            Ok(0) | Err(_) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Before the write: it would go to whoever comes next.
        if self.is_open() { self.master.write(bytes) } else { Err(io::ErrorKind::NotConnected.into()) }
    }
}
