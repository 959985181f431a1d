// SPDX-License-Identifier: Apache-2.0
//! A connection's bytes, and the descriptors that come with them (`SCM_RIGHTS`).

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use crate::devices::bus::lock;

/// Most descriptors that wait for a request. The host's kernel closes what there is no room for.
pub(super) const DESCRIPTORS_MAX: usize = 16;

/// What has come and no request has taken yet: they belong to the one whose bytes they came with. Clients wait for an answer before
/// they send the next one with some.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    descriptors: Vec<OwnedFd>,
    /// There were more than there was room for, here or in this process.
    lost: bool,
}

/// What has come with one request.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Those that there was room for.
    pub(super) descriptors: Vec<OwnedFd>,
    /// Whether there were more.
    pub(super) lost: bool,
}

impl Arrived {
    /// All that have come since this was asked last.
    pub(super) fn take(&mut self) -> Handed {
        let Self { descriptors, lost } = std::mem::take(self);
        Handed { descriptors, lost }
    }

    fn add(&mut self, descriptor: OwnedFd) {
        if self.descriptors.len() < DESCRIPTORS_MAX {
            self.descriptors.push(descriptor);
        } else {
            self.lost = true;
        }
    }
}

/// A client's end.
#[derive(Debug)]
pub(super) struct Stream {
    socket: UnixStream,
    arrived: Arc<Mutex<Arrived>>,
}

impl Stream {
    pub(super) fn new(socket: UnixStream, arrived: Arc<Mutex<Arrived>>) -> Self {
        Self { socket, arrived }
    }
}

/// Reads what is there, and keeps descriptors.
fn receive(socket: impl AsFd, buffer: &mut [u8], arrived: &Mutex<Arrived>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(buffer)];
    let received = rustix::io::retry_on_intr(|| recvmsg(&socket, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let mut arrived = lock(arrived);
    arrived.lost |= received.flags.contains(ReturnFlags::CTRUNC);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            descriptors.for_each(|descriptor| arrived.add(descriptor));
        }
    }
    Ok(received.bytes)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            let read = || receive(&self.socket, buffer.initialize_unfilled(), &self.arrived);
            match self.socket.try_io(Interest::READABLE, read) {
                Ok(length) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
