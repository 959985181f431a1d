// SPDX-License-Identifier: Apache-2.0
//! virtio console device (virtio 1.2, section 5.3) with one port, and somebody or nobody at the other end of it. A size, more ports
//! and writes before the driver is there are not offered.
//!
//! What the guest writes while nobody is there is dropped, as on a serial line without a cable: a console does not hold up a guest.

pub mod pty;
pub mod socket;
pub mod stream;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;
use vm_memory::GuestMemoryError;

use super::{Ready, Request, Source, VirtioDevice, gather, length, scatter};
use crate::memory::GuestMemory;
use crate::observe::devices::SerialCounters;
use crate::sandbox::Kind;
use crate::state::LaneState;

const QUEUE_SIZE: u16 = 64;
/// The queue of what is typed,
const RECEIVE: usize = 0;
/// and that of what the guest writes.
const SEND: usize = 1;
/// Most bytes that are read at once, and that one request may write; Linux writes at most 32 KiB. More is cut off.
const PIECE: usize = 64 << 10;

/// Where a console leads. Nothing of it ever waits.
pub trait Terminal: fmt::Debug + Send {
    /// What is watched for something to read, for queue `receive`, and for room to write, for queue `send`; two descriptors.
    fn sources(&self, receive: usize, send: usize) -> [Source; 2];

    /// What has been typed, at least a byte; [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing has.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize>;

    /// How many of `bytes` are on their way; [`WouldBlock`](io::ErrorKind::WouldBlock) if whoever is there has to read first. Any
    /// other error means that nobody is.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// When it is to be read again although nothing has happened there.
    fn retry(&self) -> Option<Duration> {
        None
    }
}

/// Whether nobody is at the other end of `end` any more.
fn has_hung_up(end: &File) -> bool {
    let mut waits = [PollFd::new(end, PollFlags::OUT)];
    let polled = poll(&mut waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && waits.iter().any(|wait| wait.revents().contains(PollFlags::HUP))
}

/// A console.
#[derive(Debug)]
pub struct Console {
    terminal: Box<dyn Terminal>,
    /// What was typed and has not been taken: `typed[start..end]`.
    typed: Box<[u8]>,
    start: usize,
    end: usize,
    /// What the guest has written and nobody has taken yet; at most a request's.
    written: Vec<u8>,
    counters: Arc<SerialCounters>,
}

impl Console {
    /// One that leads to `terminal`.
    #[must_use]
    pub fn new(terminal: Box<dyn Terminal>) -> Self {
        let typed = vec![0; PIECE].into();
        Self { terminal, typed, start: 0, end: 0, written: Vec::new(), counters: Arc::default() }
    }

    /// What it counts by.
    #[must_use]
    pub fn counters(&self) -> Arc<SerialCounters> {
        Arc::clone(&self.counters)
    }

    /// Whether there is something for the guest.
    fn has_typed(&mut self) -> bool {
        if self.start == self.end {
            self.start = 0;
            self.end = self.terminal.read(&mut self.typed).unwrap_or(0);
        }
        self.start < self.end
    }

    /// Writes what is left to write. Whether that is all of it, or nobody is there who would want it.
    fn has_written(&mut self) -> bool {
        while !self.written.is_empty() {
            match self.terminal.write(&self.written) {
                Ok(count) => {
                    self.counters.written(count as u64);
                    self.written.drain(..count.min(self.written.len()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.counters.dropped(self.written.len() as u64);
                    self.written.clear();
                }
            }
        }
        true
    }

    /// Gives the guest what was typed, as much as `request` has room for.
    fn receive(&mut self, memory: &GuestMemory, request: &Request) -> Result<u32, GuestMemoryError> {
        let given = scatter(memory, &request.writable, 0, self.typed.get(self.start..self.end).unwrap_or_default())?;
        self.start += given;
        // No more than a piece.
        Ok(u32::try_from(given).unwrap_or(0))
    }

    /// Takes what the guest writes.
    fn send(&mut self, memory: &GuestMemory, request: &Request) -> Result<(), GuestMemoryError> {
        let all = length(&request.readable);
        let taken = usize::try_from(all).unwrap_or(PIECE).min(PIECE);
        self.counters.dropped(all - taken as u64);
        self.written.resize(taken, 0);
        let result = gather(memory, &request.readable, 0, &mut self.written);
        // What could not be read is nothing that was written.
        self.written.truncate(*result.as_ref().unwrap_or(&0));
        self.has_written();
        result.map(drop)
    }
}

impl VirtioDevice for Console {
    fn device_type(&self) -> u32 {
        VIRTIO_ID_CONSOLE
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE; 2]
    }

    fn thread(&self) -> Kind {
        Kind::Console
    }

    fn sources(&self) -> Vec<Source> {
        self.terminal.sources(RECEIVE, SEND).into()
    }

    fn retry(&self) -> Option<Duration> {
        self.terminal.retry()
    }

    fn ready(&mut self, queue: usize) -> Ready {
        let ready = if queue == RECEIVE { self.has_typed() } else { self.has_written() };
        if ready { Ready::Now } else { Ready::WhenWoken }
    }

    fn handle(&mut self, queue: usize, memory: &GuestMemory, request: &Request) -> u32 {
        if !request.is_well_formed() {
            return 0;
        }
        if queue == RECEIVE {
            return self.receive(memory, request).unwrap_or(0);
        }
        // Memory that is not there is the guest's mistake.
        let _ = self.send(memory, request);
        0
    }

    fn save(&mut self) -> Option<LaneState> {
        let typed = self.typed.get(self.start..self.end).unwrap_or_default().to_vec();
        Some(LaneState::Console { typed, written: self.written.clone() })
    }

    fn restore(&mut self, state: LaneState) {
        let LaneState::Console { typed, mut written } = state else { return };
        self.end = typed.len().min(PIECE);
        self.start = 0;
        self.typed.iter_mut().zip(typed).for_each(|(to, from)| *to = from);
        written.truncate(PIECE);
        self.written = written;
    }
}

impl Drop for Console {
    /// The last that a guest has said is not lost if there is room for it.
    fn drop(&mut self) {
        self.has_written();
    }
}
