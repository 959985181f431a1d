// SPDX-License-Identifier: Apache-2.0
//! A connected stream socket whose other end is a program that is a network for the guest: each frame comes behind its length, four
//! bytes in network order, as with `-netdev stream` of QEMU, which passt and others speak. There are no offloads.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::{FileType, OFlags};
use rustix::net::{Shutdown, SocketType, shutdown};

use super::frame::{FRAME_MAX, HEADER_SIZE};
use super::link::Link;

/// Bytes of a frame's length.
const LENGTH_SIZE: usize = 4;
/// What the other end takes for a frame, without its length: an Ethernet header, and what one length can say.
const FRAMES: std::ops::RangeInclusive<usize> = 14..=65535;
/// What is read at once: at least one frame with its length.
const BUFFER_SIZE: usize = 2 * FRAME_MAX;

/// One end of such a connection.
#[derive(Debug)]
pub struct Stream {
    socket: File,
    /// The same once more: to be watched for room, where the first is for frames.
    room: OwnedFd,
    come: Come,
    /// What the socket had no room for of the last frame.
    rest: Vec<u8>,
    /// What has come makes no sense any more, or nothing ever will.
    over: bool,
    /// Whether anything has come or gone.
    used: bool,
}

/// What has come and not been taken.
#[derive(Debug)]
struct Come {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Come {
    /// The next frame, if all of it is there.
    fn frame(&mut self) -> io::Result<Option<&[u8]>> {
        let there = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some((length, rest)) = there.split_first_chunk::<LENGTH_SIZE>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if !(*FRAMES.start()..=FRAME_MAX - HEADER_SIZE).contains(&length) {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "what it sends are no frames: there is no network any more",
            ));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.start += LENGTH_SIZE + length;
        Ok(Some(frame))
    }

    /// Reads as much as there is room for. An end is an error.
    fn read(&mut self, mut from: &File) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        match from.read(self.buffer.get_mut(self.end..).unwrap_or_default())? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "its other end is gone: there is no network any more")),
            length => {
                self.end += length;
                Ok(())
            }
        }
    }
}

impl Stream {
    /// A connection over `socket`, which must be a stream.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        if rustix::net::sockopt::socket_type(&socket)? != SocketType::STREAM {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is no stream socket"));
        }
        // As this process's own may be, by which it is asked for things: it would be shut down in the end.
        if rustix::net::sockopt::socket_acceptconn(&socket)? {
            return Err(io::Error::new(ErrorKind::InvalidInput, "is a listening socket"));
        }
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        let room = socket.try_clone()?;
        let come = Come { buffer: vec![0; BUFFER_SIZE].into(), start: 0, end: 0 };
        Ok(Self { socket: socket.into(), room, come, rest: Vec::new(), over: false, used: false })
    }

    /// Whether `file` is a socket at all.
    pub fn is_one(file: &OwnedFd) -> io::Result<bool> {
        Ok(FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode) == FileType::Socket)
    }

    /// Nothing can be told apart any more.
    fn give_up(&mut self, error: io::Error) -> io::Error {
        self.over = true;
        self.rest.clear();
        error
    }
}

impl Drop for Stream {
    /// Whoever goes on with the same socket, as a VM that has reset would, finds it out of step: better none. One that nothing has
    /// gone over, as of a VM that could not be started, is as good as before.
    fn drop(&mut self) {
        if self.used {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}

impl Link for Stream {
    fn is_up(&self) -> bool {
        !self.over
    }

    fn incoming(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn outgoing(&self) -> Option<RawFd> {
        Some(self.room.as_raw_fd())
    }

    fn has_room(&mut self) -> bool {
        while !self.rest.is_empty() {
            match self.socket.write(&self.rest) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                // The other end has a part of a frame, and would take the next one for the rest of it.
                Err(error) => drop(self.give_up(error)),
            }
        }
        true
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.over {
            match self.come.frame() {
                Ok(Some(frame)) => {
                    let Some((header, to)) = buffer.split_at_mut_checked(HEADER_SIZE) else { break };
                    header.fill(0);
                    let Some(to) = to.get_mut(..frame.len()) else { break };
                    to.copy_from_slice(frame);
                    return Ok(HEADER_SIZE + frame.len());
                }
                Ok(None) => match self.come.read(&self.socket) {
                    Ok(()) => self.used = true,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.give_up(error)),
                },
                Err(error) => return Err(self.give_up(error)),
            }
        }
        Ok(0)
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let frame = frame.get(HEADER_SIZE..).unwrap_or_default();
        if self.over {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if !FRAMES.contains(&frame.len()) {
            // It would be the last thing that the other end hears.
            return Err(ErrorKind::InvalidInput.into());
        }
        self.used = true;
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes();
        let written = match self.socket.write_vectored(&[IoSlice::new(&length), IoSlice::new(frame)]) {
            Ok(written) => written,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => 0,
            Err(error) => return Err(error),
        };
        // Whatever is left goes before the next frame, or the other end could not tell the two apart.
        let of_length = length.iter().chain(frame);
        self.rest.extend(of_length.skip(written));
        Ok(())
    }
}
