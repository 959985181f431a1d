// SPDX-License-Identifier: Apache-2.0
//! The control API: HTTP on a UNIX socket, from which requests go to the owner of the VM. Paths, verbs, JSON and statuses are Cloud
//! Hypervisor's.
//!
//! One thread serves all connections. It does nothing itself that takes long: while the owner of the VM is busy, others are served.

mod answer;
mod connections;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod route;
mod service;
mod socket;
mod stream;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use crate::listener::Bound;
use crate::vmm::Caller;

pub use socket::Listen;

/// Stack of the thread. Requests are on the heap.
const STACK: usize = 256 << 10;

/// Why there is no API.
#[derive(Debug, thiserror::Error)]
#[error("--api-socket {place}: {what}")]
pub struct ApiError {
    /// Where requests were to come from.
    place: String,
    /// What is wrong, and what would be right.
    what: String,
}

/// The API, until it is dropped: then it has given its last answers and the socket is gone.
#[derive(Debug)]
pub struct Api {
    /// Dropping it is what ends the thread.
    stop: Option<oneshot::Sender<()>>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    bound: Arc<Option<Bound>>,
}

impl Api {
    /// Requests that come to `listen` go to `caller`. `begin` is the first that the thread does which takes them; it ends if there is
    /// nothing to keep.
    pub fn start<G>(
        listen: Listen,
        caller: Caller,
        begin: impl FnOnce() -> Option<G> + Send + 'static,
    ) -> Result<Self, ApiError> {
        let place = listen.to_string();
        let failed = |what: String| ApiError { place: place.clone(), what };
        let (bound, listener) = socket::bind(listen).map_err(failed)?;
        let host = |error: io::Error| failed(format!("cannot be served: {error}"));
        // Nothing of it needs a thread of its own.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().map_err(host)?;
        let (stop, stopped) = oneshot::channel();
        let (done, ended) = channel();
        let builder = thread::Builder::new().name("api".to_owned()).stack_size(STACK);
        let thread = builder.spawn(move || {
            if let Some(_kept) = begin() {
                runtime.block_on(connections::serve(listener, caller, stopped));
            }
            drop(done);
        });
        Ok(Self { stop: Some(stop), ended, thread: Some(thread.map_err(host)?), bound: Arc::new(bound) })
    }
}

impl Api {
    /// Removes the socket, for whoever is about to end the process.
    pub fn remover(&self) -> impl Fn() + Send + 'static {
        let bound = Arc::clone(&self.bound);
        move || bound.iter().for_each(Bound::remove)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Nothing is ever sent: it is over when the other end is gone. A thread that hangs must not keep the process.
        let in_time =
            self.ended.recv_timeout(2 * connections::LAST) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| in_time) {
            let _ = thread.join();
        }
        self.bound.iter().for_each(Bound::remove);
    }
}
