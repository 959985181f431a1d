// SPDX-License-Identifier: Apache-2.0
//! A connection's bytes, and the descriptors that come with them (`SCM_RIGHTS`).

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker, ready};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
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
    socket: Arc<UnixStream>,
    arrived: Arc<Mutex<Arrived>>,
}

/// Looks at a stream from outside. It does not keep it open.
#[derive(Debug)]
pub(super) struct Peer(Weak<UnixStream>);

impl Stream {
    pub(super) fn new(socket: UnixStream, arrived: Arc<Mutex<Arrived>>) -> Self {
        Self { socket: Arc::new(socket), arrived }
    }

    /// For whoever asks whether the client is still there.
    pub(super) fn peer(&self) -> Peer {
        Peer(Arc::downgrade(&self.socket))
    }
}

impl Peer {
    /// Whether nobody is there who could read an answer. Who has only closed the side that it writes to waits for one.
    pub(super) fn is_gone(&self) -> bool {
        let Some(socket) = self.0.upgrade() else { return true };
        let ready = pin!(socket.ready(Interest::WRITABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.is_ok_and(Ready::is_write_closed),
            // It has not read all that it was sent: it is there.
            Poll::Pending => false,
        }
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

/// Does `write` when `socket` takes something.
fn when_writable(
    socket: &UnixStream,
    context: &mut Context<'_>,
    write: impl Fn() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(socket.poll_write_ready(context))?;
        match write() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        when_writable(&self.socket, context, || self.socket.try_write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&self.socket, Shutdown::Write)?))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        when_writable(&self.socket, context, || self.socket.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}
