// SPDX-License-Identifier: Apache-2.0
//! Connections: many at once, none of which holds up another one, and never so many that nobody else comes in.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::answer::Sent;
use super::service::Service;
use super::stream::{Peer, Stream};
use crate::vmm::Caller;

/// How long they may take to end.
pub(super) const LAST: Duration = Duration::from_secs(1);
/// Most connections at once. One more, and one is closed: see [`superfluous`].
const CONNECTIONS_MAX: usize = 128;
/// Bytes that the line and the headers of a request may have. What has more, or is no HTTP, hyper answers itself, with a status and
/// no body: nobody else gets to say what is wrong.
const HEAD_MAX: usize = 16 << 10;
/// How long the line and the headers of a request may take, from the answer before it on: a connection that says nothing is
/// closed.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// A host that is out of descriptors may have some again by then.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection that is served.
struct Connection {
    task: JoinHandle<()>,
    /// How many of its requests are not answered.
    busy: Arc<AtomicUsize>,
    peer: Peer,
}

/// Serves whoever comes to `listener` until `stopped`, and then gives the last answers.
pub(super) async fn serve(listener: StdListener, caller: Caller, stopped: oneshot::Receiver<()>) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the API cannot be served"),
    };
    let (closing, closed) = watch::channel(());
    let mut connections: VecDeque<Connection> = VecDeque::new();
    let mut stopped = pin!(stopped);
    loop {
        let next = poll_fn(|context| match stopped.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => listener.poll_accept(context).map(Some),
        });
        match next.await {
            None => break,
            Some(Ok((stream, _))) => {
                connections.retain(|connection| !connection.task.is_finished());
                make_room(&mut connections);
                connections.push_back(spawn(stream, caller.clone(), closed.clone()));
            }
            Some(Err(error)) => {
                // Nobody is told more often than that: the next attempt waits.
                tracing::warn!(%error, "a connection to the API is lost");
                sleep(AGAIN).await;
            }
        }
    }
    drop((listener, closing));
    let all = async {
        for connection in &mut connections {
            let _ = (&mut connection.task).await;
        }
    };
    let _ = timeout(LAST, all).await;
}

fn make_room(connections: &mut VecDeque<Connection>) {
    if connections.len() < CONNECTIONS_MAX {
        return;
    }
    if let Some(connection) = superfluous(connections).and_then(|index| connections.remove(index)) {
        connection.task.abort();
    }
}

/// The one to close: one that nobody reads an answer from any more; else the one that has been there longest of those that ask
/// nothing; else the one that came last, as those before it have waited longer, for a VM's start perhaps.
fn superfluous(connections: &VecDeque<Connection>) -> Option<usize> {
    let gone = connections.iter().position(|connection| connection.peer.is_gone());
    let idle = || connections.iter().position(|connection| connection.busy.load(Ordering::Relaxed) == 0);
    gone.or_else(idle).or_else(|| connections.len().checked_sub(1))
}

fn spawn(stream: UnixStream, caller: Caller, closed: watch::Receiver<()>) -> Connection {
    let busy = Arc::default();
    let arrived = Arc::default();
    let service = Service::new(caller, Arc::clone(&busy), Arc::clone(&arrived));
    let stream = Stream::new(stream, arrived);
    let peer = stream.peer();
    Connection { task: tokio::spawn(converse(TokioIo::new(stream), service, closed)), busy, peer }
}

/// Answers one request after another. When `closed` ends, the present one is the last.
pub(super) async fn converse<S>(stream: impl Read + Write + Unpin, service: S, mut closed: watch::Receiver<()>)
where
    S: hyper::service::Service<Request<Incoming>, Response = Sent, Error = Infallible>,
{
    let mut builder = http1::Builder::new();
    builder.half_close(true).max_buf_size(HEAD_MAX).timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    let connection = builder.serve_connection(stream, service);
    let mut connection = pin!(connection);
    // It never changes: it ends.
    let mut closing = pin!(closed.changed());
    let mut last = false;
    let result = poll_fn(|context| {
        if !last && closing.as_mut().poll(context).is_ready() {
            last = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = result.await {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection to the API ends");
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream as StdStream;

    use super::*;

    /// One with `busy` requests, and its client.
    fn connection(busy: usize) -> (Connection, StdStream) {
        let (ours, theirs) = StdStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = Stream::new(UnixStream::from_std(ours).unwrap(), Arc::default());
        let peer = stream.peer();
        let keep = async move {
            let _stream = stream;
            pending::<()>().await;
        };
        (Connection { task: tokio::spawn(keep), busy: Arc::new(AtomicUsize::new(busy)), peer }, theirs)
    }

    async fn who_stays() {
        let all = [1, 1, 0, 1, 0, 1].map(connection);
        let (mut connections, mut clients): (VecDeque<_>, Vec<_>) = all.into_iter().unzip();
        // It waits for an answer.
        clients[1].shutdown(Shutdown::Write).unwrap();
        drop(clients.remove(3));
        for expected in [Some(3), Some(2), Some(2), Some(2), Some(1), Some(0), None] {
            tokio::task::yield_now().await;
            let found = superfluous(&connections);
            assert_eq!(found, expected);
            found.and_then(|index| connections.remove(index));
        }
    }

    #[test]
    fn who_has_waited_longest_stays() {
        tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(who_stays());
    }
}
