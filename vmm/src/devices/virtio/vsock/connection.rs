// SPDX-License-Identifier: Apache-2.0
//! One connection between a program of the guest and one of the host.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::{Shutdown, shutdown};
use vmm_sys_util::epoll::EventSet;

use super::packet::{Credit, Header, Op, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};

/// Bytes that are kept for the host while it has no room for them.
pub(super) const ROOM: u32 = 256 << 10;
/// After so many bytes that were passed on, a guest that has heard nothing is told that there is room again.
const TELL: u32 = ROOM / 4;

/// A connection, from the request on.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each side may end each direction, in any order")]
pub(super) struct Connection {
    /// A stream socket that never waits.
    stream: File,
    /// What the guest has answered to is the host's request, or was its own.
    open: bool,
    /// What the guest can take, and what it has been sent, modulo 2^32.
    guest: Credit,
    sent: u32,
    /// What the host has taken, modulo 2^32, and how much of that the guest has been told of.
    passed: u32,
    told: u32,
    /// From the guest, for the host.
    waiting: VecDeque<u8>,
    /// What the guest is to be told, each once.
    due: VecDeque<Op>,
    /// The directions in which something may still come.
    from_host: bool,
    from_guest: bool,
    /// The guest takes nothing any more.
    deaf: bool,
    /// The host takes nothing any more.
    hung_up: bool,
    /// The guest has asked for what it has to be told anyway, and waits for just that.
    asked: bool,
    /// The host has refused something: all else that the guest sends is as good as taken.
    swallows: bool,
    /// The guest has forgotten it; what it has sent before still goes to the host.
    gone: bool,
    /// For what its socket is watched.
    pub(super) watched: Watched,
}

/// For what a socket is watched, in each of the two places.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) incoming: Option<EventSet>,
    pub(super) outgoing: Option<EventSet>,
}

/// What has come from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// Nothing any more, or an error: the guest is to be told.
    End,
}

impl Connection {
    fn new(stream: OwnedFd, open: bool, guest: Credit, first: Op) -> Self {
        Self {
            stream: stream.into(),
            open,
            guest,
            sent: 0,
            passed: 0,
            told: 0,
            waiting: VecDeque::new(),
            due: VecDeque::from([first]),
            from_host: true,
            from_guest: true,
            deaf: false,
            hung_up: false,
            asked: false,
            swallows: false,
            gone: false,
            watched: Watched::default(),
        }
    }

    /// A program of the host wants it.
    pub(super) fn to_guest(stream: OwnedFd) -> Self {
        Self::new(stream, false, Credit::default(), Op::Request)
    }

    /// The guest wants it, and the host has taken it.
    pub(super) fn from_guest(stream: OwnedFd, guest: Credit) -> Self {
        Self::new(stream, true, guest, Op::Response)
    }

    /// The socket.
    pub(super) fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    // ---- To the guest -------------------------------------------------------------------------------------------

    /// Whether something is to be read from the host, and can be passed on.
    pub(super) fn takes_from_host(&self) -> bool {
        self.open && self.from_host && self.room() > 0
    }

    /// Bytes that the guest has room for. One that claims to have taken more than it got has none.
    fn room(&self) -> u32 {
        self.guest.room.saturating_sub(self.sent.wrapping_sub(self.guest.passed))
    }

    /// Reads what the guest has room for into `buffer`.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Came {
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX).min(buffer.len());
        loop {
            return match self.stream.read(buffer.get_mut(..room).unwrap_or_default()) {
                Ok(length) if length > 0 => {
                    // No more than the room, which is a u32.
                    self.sent = self.sent.wrapping_add(u32::try_from(length).unwrap_or(u32::MAX));
                    if self.room() == 0 {
                        self.owe(Op::CreditRequest);
                    }
                    Came::Bytes(length)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Came::Nothing,
                end => {
                    self.from_host = false;
                    self.hung_up |= end.is_err();
                    self.owe(Op::Shutdown);
                    Came::End
                }
            };
        }
    }

    /// The host's end is closed in both directions: once all is read, the guest need send no more either.
    pub(super) fn hang_up(&mut self) {
        self.hung_up = true;
        if !self.open {
            self.owe(Op::Reset);
        } else if !self.from_host {
            // It has heard of one direction only.
            self.owe(Op::Shutdown);
        }
    }

    /// For what its socket is to be watched. That the host has hung up is seen whatever for.
    pub(super) fn watch(&self) -> Watched {
        let watched = |wanted, events: EventSet| (wanted && !self.is_over()).then_some(events);
        let incoming = watched(self.takes_from_host(), EventSet::IN);
        Watched {
            incoming: incoming.or_else(|| watched(!self.hung_up && !self.gone, EventSet::empty())),
            outgoing: watched(self.waits_for_host(), EventSet::OUT),
        }
    }

    /// Whether nothing more can come of it, and the guest has been told so.
    pub(super) const fn is_dead(&self) -> bool {
        !self.from_host && self.hung_up
    }

    /// The guest is to be told `op`.
    pub(super) fn owe(&mut self, op: Op) {
        if !self.gone && !self.due.contains(&op) {
            self.due.push_back(op);
        }
    }

    /// Whether the guest is to be told something.
    pub(super) fn owes(&self) -> bool {
        !self.due.is_empty()
    }

    /// Whether the end of it is due, which nothing can follow.
    pub(super) fn is_over(&self) -> bool {
        self.due.contains(&Op::Reset)
    }

    /// What the guest is told next, and with which flags. After [`Op::Reset`] the connection is no more.
    pub(super) fn pay(&mut self) -> Option<(Op, u32)> {
        let op = if self.is_over() { Op::Reset } else { self.due.pop_front()? };
        self.asked &= op != Op::CreditUpdate;
        let both = if self.hung_up { SHUTDOWN_RECEIVE } else { 0 };
        Some((op, if op == Op::Shutdown { SHUTDOWN_SEND | both } else { 0 }))
    }

    /// What the guest is told with each packet of how much it can send.
    pub(super) fn credit(&mut self) -> Credit {
        self.told = self.passed;
        let asked = self.asked;
        self.due.retain(|op| *op != Op::CreditUpdate || asked);
        Credit { room: ROOM, passed: self.passed }
    }

    // ---- From the guest -----------------------------------------------------------------------------------------

    /// Takes a packet. What breaks the protocol ends the connection.
    pub(super) fn take(&mut self, header: &Header, data: &[u8]) {
        self.guest = header.credit;
        match header.op {
            Some(Op::Response) if !self.open => self.open(header.destination_port),
            Some(Op::Data) if self.open && self.from_guest => self.write(data),
            Some(Op::Shutdown) if self.open => self.shut(header.flags),
            Some(Op::CreditUpdate) if self.open => {}
            Some(Op::CreditRequest) if self.open => {
                self.asked = true;
                self.owe(Op::CreditUpdate);
            }
            _ => self.owe(Op::Reset),
        }
    }

    /// The guest has accepted the connection: the host's program is told the port that it has.
    fn open(&mut self, port: u32) {
        self.open = true;
        let answer = format!("OK {port}\n");
        if !self.stream.write(answer.as_bytes()).is_ok_and(|written| written == answer.len()) {
            self.owe(Op::Reset);
        }
    }

    fn write(&mut self, data: &[u8]) {
        if data.len() > (ROOM as usize).saturating_sub(self.waiting.len()) {
            return self.owe(Op::Reset);
        }
        if self.swallows {
            return self.pass(data.len());
        }
        let at_once = if self.waiting.is_empty() { self.try_write(data) } else { Ok(0) };
        let Ok(written) = at_once else {
            self.pass(data.len());
            return self.swallow();
        };
        let rest = data.get(written..).unwrap_or_default();
        if !rest.is_empty() {
            // No more than what can wait, however often some of it has gone.
            self.waiting.reserve_exact((ROOM as usize).saturating_sub(self.waiting.len()));
        }
        self.waiting.extend(rest);
    }

    /// The host takes no more. It may have said something before, which the guest is to get: a server that refuses what is too long
    /// for it does so in the midst of that.
    fn swallow(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.pass(waiting.len());
        if self.from_host {
            (self.swallows, self.hung_up) = (true, true);
        } else {
            self.owe(Op::Reset);
        }
    }

    /// So many bytes need no room any more.
    fn pass(&mut self, bytes: usize) {
        // At most what there was room for.
        self.passed = self.passed.wrapping_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.passed.wrapping_sub(self.told) >= TELL {
            self.owe(Op::CreditUpdate);
        }
    }

    /// How much of `data` the host takes now.
    fn try_write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(written) => done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.pass(done);
        Ok(done)
    }

    /// Whether something waits for the host to have room.
    pub(super) fn waits_for_host(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Passes on what has waited.
    pub(super) fn flush(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        while !waiting.is_empty() {
            // One of two, where it goes round the end of its memory.
            let piece = waiting.as_slices().0;
            let length = piece.len();
            let Ok(written) = self.try_write(piece) else {
                self.waiting = waiting;
                self.swallow();
                return self.end_if_done();
            };
            drop(waiting.drain(..written));
            if written < length {
                break;
            }
        }
        // What is empty has no memory: it is for others.
        self.waiting = if waiting.is_empty() { VecDeque::new() } else { waiting };
        self.end_if_done();
    }

    /// The guest will receive no more, or send no more.
    fn shut(&mut self, flags: u32) {
        if flags & SHUTDOWN_RECEIVE != 0 {
            // Nothing is read any more, so nobody waits for its end.
            (self.deaf, self.from_host) = (true, false);
            // One that is closed already needs no telling.
            let _ = shutdown(&self.stream, Shutdown::Read);
        }
        self.from_guest &= flags & SHUTDOWN_SEND == 0;
        self.end_if_done();
    }

    /// Passes on the end of what the guest sends, behind all of that.
    fn end_if_done(&mut self) {
        if self.from_guest || self.waits_for_host() {
            return;
        }
        if self.deaf {
            self.owe(Op::Reset);
        }
        let _ = shutdown(&self.stream, Shutdown::Write);
    }

    /// The guest has forgotten it.
    pub(super) fn forget(&mut self) {
        self.due.clear();
        self.gone = true;
        (self.deaf, self.from_host, self.from_guest) = (true, false, false);
    }

    /// Whether the guest has forgotten it.
    pub(super) const fn is_gone(&self) -> bool {
        self.gone
    }
}
