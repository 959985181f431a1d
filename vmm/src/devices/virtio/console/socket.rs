// SPDX-License-Identifier: Apache-2.0
//! A UNIX socket: whoever connects to it is at the guest's console, one at a time.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::{Source, Terminal, has_hung_up};
use crate::complaints::Complaints;

/// How often it is tried to take whoever waits, where there was no room for that.
const RETRY: Duration = Duration::from_secs(1);

/// The listening side.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    client: Option<File>,
    /// Knows the listener while nobody is connected, and whoever is.
    incoming: Epoll,
    /// Knows whoever is connected, and `gone`.
    outgoing: Epoll,
    /// Whoever was there has gone: what waits for room for that one waits for nothing.
    gone: EventFd,
    /// Whoever waits cannot be taken: this process has no room for another descriptor.
    is_full: bool,
    complaints: Complaints,
}

impl Socket {
    /// One whose clients come from `listener`, which must not block.
    pub fn new(listener: UnixListener) -> io::Result<Self> {
        let (incoming, outgoing) = (Epoll::new()?, Epoll::new()?);
        let gone = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?;
        watch(&outgoing, gone.as_raw_fd(), EventSet::IN)?;
        watch(&incoming, listener.as_raw_fd(), EventSet::IN)?;
        let complaints = Complaints::default();
        Ok(Self { listener, client: None, incoming, outgoing, gone, is_full: false, complaints })
    }

    /// Whoever is there; if nobody is, whoever waits to be.
    fn client(&mut self) -> io::Result<&mut File> {
        if self.client.is_none() {
            // As a file, and not by the library's way: what makes that not block, and reads from it, are calls for which this
            // thread has no leave.
            let client = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            self.is_full = matches!(client, Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS));
            if self.is_full
                && let Some(count) = self.complaints.count()
            {
                tracing::warn!(count, "console: whoever connects cannot be taken: there are too many open files");
            }
            let client = File::from(client?);
            watch(&self.incoming, client.as_raw_fd(), EventSet::IN)?;
            watch(&self.outgoing, client.as_raw_fd(), EventSet::OUT)?;
            // Others wait until this one has gone.
            self.incoming.ctl(ControlOperation::Delete, self.listener.as_raw_fd(), EpollEvent::default())?;
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Whether whoever is there has left for good.
    fn is_gone(&self) -> bool {
        self.client.as_ref().is_none_or(has_hung_up)
    }

    /// Whoever was there has gone: the next one may come. What is closed is watched no more.
    fn hang_up(&mut self) {
        if self.client.take().is_some() {
            // Cannot fail but for lack of memory; then nobody comes any more.
            let _ = watch(&self.incoming, self.listener.as_raw_fd(), EventSet::IN);
            // A full counter has woken whoever waits.
            let _ = self.gone.write(1);
        }
    }
}

fn watch(epoll: &Epoll, descriptor: RawFd, events: EventSet) -> io::Result<()> {
    // A descriptor is never negative.
    epoll.ctl(ControlOperation::Add, descriptor, EpollEvent::new(events, u64::try_from(descriptor).unwrap_or(0)))
}

impl Terminal for Socket {
    fn retry(&self) -> Option<Duration> {
        self.is_full.then_some(RETRY)
    }

    fn sources(&self, receive: usize, send: usize) -> [Source; 2] {
        // What has an event is readable itself.
        [Source::readable(self.incoming.as_raw_fd(), receive), Source::readable(self.outgoing.as_raw_fd(), send)]
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.client()?.read(bytes) {
                Ok(count) if count > 0 => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It has said all that it wants to say, and may still read.
                Ok(_) if !self.is_gone() => return Err(io::ErrorKind::WouldBlock.into()),
                // Perhaps another one is waiting.
                Ok(_) | Err(_) => self.hang_up(),
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Ok(client) = self.client() else { return Err(io::ErrorKind::NotConnected.into()) };
        match client.write(bytes) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.hang_up();
                Err(io::ErrorKind::NotConnected.into())
            }
            other => other,
        }
    }
}
