// SPDX-License-Identifier: Apache-2.0
//! What flatboot itself reads and writes: a file, or the terminal that it runs on.

use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::{Source, Terminal};
use crate::complaints::Complaints;

/// Bytes that a pipe or a terminal which has room takes without letting anybody wait. It may have no more room than that, and what
/// makes it not block would change it for others as well, which have it open, too.
const LITTLE: usize = 256;

/// Standard input and output, or a file.
#[derive(Debug)]
pub struct Stream {
    output: File,
    /// Whether it can be full, and is watched then. A file takes as long as its disk does.
    fills: bool,
    /// Bytes that it may still be given.
    left: u64,
    typed: Option<File>,
    /// What is watched in place of what is not there, for each queue; never ready.
    nothing: [EventFd; 2],
    complaints: Complaints,
}

impl Stream {
    /// One that writes at most `most` bytes to `output`, and reads what comes through `typed`.
    pub fn new(output: File, most: u64, typed: Option<PipeReader>) -> io::Result<Self> {
        let kind = output.metadata()?.file_type();
        let fills = kind.is_fifo() || kind.is_socket() || output.is_terminal();
        let typed = typed.map(|pipe| File::from(OwnedFd::from(pipe)));
        if let Some(pipe) = &typed {
            fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        let nothing = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        let nothing = [nothing()?, nothing()?];
        Ok(Self { output, fills, left: most, typed, nothing, complaints: Complaints::default() })
    }

    /// Whether a write would have to wait.
    fn is_full(&self) -> bool {
        let mut waits = [PollFd::new(&self.output, PollFlags::OUT)];
        let polled = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        // Of one that nobody reads any more, the write says so.
        polled.is_ok_and(|ready| ready == 0)
    }

    /// Writes what it may.
    fn give(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = room.min(if self.fills { LITTLE } else { usize::MAX });
        match bytes.get(..most.min(bytes.len())) {
            Some(piece) if !piece.is_empty() => self.output.write(piece),
            _ => Err(io::Error::other("it has reached its limit (serial_limit)")),
        }
    }
}

impl Terminal for Stream {
    fn sources(&self, receive: usize, send: usize) -> [Source; 2] {
        let [no_input, no_room] = &self.nothing;
        let typed = self.typed.as_ref().map_or(no_input.as_raw_fd(), AsRawFd::as_raw_fd);
        let room = if self.fills {
            Source::writable(self.output.as_raw_fd(), send)
        } else {
            Source::readable(no_room.as_raw_fd(), send)
        };
        [Source::readable(typed, receive), room]
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.typed.as_mut().map(|typed| typed.read(bytes)) {
            Some(Ok(count)) if count > 0 => Ok(count),
            // Nothing now, nothing any more, or nothing ever.
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.fills && self.is_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.give(bytes) {
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Err(error),
            Err(error) => {
                if let Some(count) = self.complaints.count() {
                    tracing::warn!(%error, "console output: {count} piece(s) could not be written");
                }
                Err(error)
            }
        }
    }
}
