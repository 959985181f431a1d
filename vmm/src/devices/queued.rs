// SPDX-License-Identifier: Apache-2.0
//! A writer that waits for nobody: what it is given, a thread writes to a file, however slow that is.
//!
//! What does not fit in between any more is refused. In a pause nothing is written; what came before it is there when it is
//! reached, as it is at the end.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Mutex};

use super::bus::lock;
use super::running::{Orders, Running, WorkerError};
use crate::complaints::Complaints;
use crate::observe::devices::SerialCounters;

/// Bytes that may wait, and as many may be on their way: no guest that types is as fast, but one whose disk hangs is.
const WAITING_MAX: usize = 256 << 10;
/// Bytes written at once: what is given up waits for no more.
const PIECE: usize = 64 << 10;
/// Stack of the thread, which writes and does little else.
const STACK: usize = 64 << 10;
/// The thread.
const NAME: &str = "serial-output";

/// Why a byte is refused.
#[derive(Debug, thiserror::Error)]
#[error("its output is slower than the guest")]
struct TooSlow;

/// The end that is written to.
#[derive(Debug)]
pub struct Queued {
    waiting: Arc<Mutex<Vec<u8>>>,
    orders: Arc<Orders>,
}

/// The other end, and no thread yet.
#[derive(Debug)]
pub struct QueueWriter<W> {
    waiting: Arc<Mutex<Vec<u8>>>,
    orders: Arc<Orders>,
    to: W,
    counters: Arc<SerialCounters>,
}

/// Both ends of a way to `to`; what that does not take, `counters` count as dropped.
pub fn queue<W: Write>(to: W, counters: Arc<SerialCounters>) -> io::Result<(Queued, QueueWriter<W>)> {
    let (waiting, orders) = (Arc::default(), Arc::new(Orders::new()?));
    let queued = Queued { waiting: Arc::clone(&waiting), orders: Arc::clone(&orders) };
    Ok((queued, QueueWriter { waiting, orders, to, counters }))
}

impl Write for Queued {
    /// All of it or nothing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() + bytes.len() > WAITING_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, TooSlow));
        }
        let was_empty = waiting.is_empty();
        waiting.extend_from_slice(bytes);
        drop(waiting);
        // Otherwise it has been said, and the thread takes all there is.
        if was_empty {
            self.orders.has_more();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write + Send + 'static> QueueWriter<W> {
    /// Starts the thread that writes, until the result is dropped. The first that it does is `begin`, whose result it keeps
    /// as long as it runs; without one it does nothing.
    pub fn start<G>(self, begin: impl FnOnce() -> Option<G> + Send + 'static) -> Result<Running, WorkerError> {
        let orders = Arc::clone(&self.orders);
        Running::start(NAME.to_owned(), STACK, &orders, begin, move |orders| self.run(orders)).map(Running::apart)
    }

    fn run(mut self, orders: &Orders) {
        let mut complaints = Complaints::default();
        let mut taken = Vec::new();
        while orders.next_before_rest(|| self.take(&mut taken)).is_some() {
            for piece in taken.chunks(PIECE) {
                if orders.is_left_behind() {
                    return;
                }
                if let Err(error) = self.to.write_all(piece).and_then(|()| self.to.flush()) {
                    self.counters.dropped(piece.len() as u64);
                    if let Some(count) = complaints.count() {
                        tracing::warn!(%error, "serial output: not all of {count} piece(s) could be written");
                    }
                }
            }
        }
    }

    /// All that waits, in place of what `taken` had.
    fn take(&self, taken: &mut Vec<u8>) -> Option<()> {
        taken.clear();
        mem::swap(&mut *lock(&self.waiting), taken);
        (!taken.is_empty()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::observe::devices::DeviceCounters as _;

    /// No result depends on it: what is waited for comes at once, or the test fails.
    const LONG: Duration = Duration::from_secs(60);

    /// A disk that takes a piece when it is told to, and none when it never will be.
    struct Slow {
        begun: Sender<usize>,
        may: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(bytes.len()).unwrap();
            self.may.recv().map_err(|_| io::ErrorKind::StorageFull)?;
            lock(&self.written).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Lab {
        queued: Queued,
        running: Running,
        begun: Receiver<usize>,
        may: Sender<()>,
        written: Arc<Mutex<Vec<u8>>>,
        counters: Arc<SerialCounters>,
    }

    fn lab() -> Lab {
        let ((begun_tx, begun), (may, may_rx)) = (channel(), channel());
        let (written, counters) = (Arc::default(), Arc::<SerialCounters>::default());
        let slow = Slow { begun: begun_tx, may: may_rx, written: Arc::clone(&written) };
        let (queued, writer) = queue(slow, Arc::clone(&counters)).unwrap();
        let running = writer.start(|| Some(())).unwrap();
        Lab { queued, running, begun, may, written, counters }
    }

    /// A guest is not held up, however long its disk is, and what there is room for comes.
    #[test]
    fn nobody_waits_for_a_disk_that_hangs() {
        let mut lab = lab();
        lab.queued.write_all(b"first").unwrap();
        assert_eq!(lab.begun.recv_timeout(LONG), Ok(5));
        let kib: Vec<u8> = (0..=255).cycle().take(1024).collect();
        for _ in 0..WAITING_MAX / kib.len() {
            lab.queued.write_all(&kib).unwrap();
        }
        let refused = lab.queued.write_all(b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(refused.to_string(), "its output is slower than the guest");
        // It goes on, and all that was taken comes, in order.
        (0..=WAITING_MAX / PIECE).for_each(|_| lab.may.send(()).unwrap());
        drop(lab.running);
        let written = lock(&lab.written);
        assert!(written.starts_with(b"first") && written.len() == 5 + WAITING_MAX);
        assert!(written[5..].chunks(1024).all(|chunk| chunk == kib));
    }

    #[test]
    fn a_pause_begins_behind_what_came_before_it() {
        let mut lab = lab();
        lab.queued.write_all(b"before").unwrap();
        assert_eq!(lab.begun.recv_timeout(LONG), Ok(6));
        lab.running.ask_to_pause();
        assert!(lab.running.await_pause(Duration::from_millis(20)).is_err(), "it is not written yet");
        lab.may.send(()).unwrap();
        lab.running.await_pause(LONG).unwrap();
        assert_eq!(*lock(&lab.written), b"before");
        lab.queued.write_all(b"after").unwrap();
        lab.may.send(()).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(*lock(&lab.written), b"before", "it is written in a pause");
        lab.running.resume();
        assert_eq!(lab.begun.recv_timeout(LONG), Ok(5));
    }

    /// The end of a VM waits for a disk that hangs, but not for long, and what it has not taken by then never comes.
    #[test]
    fn the_end_does_not_wait_for_ever() {
        let mut lab = lab();
        lab.queued.write_all(b"hangs").unwrap();
        assert_eq!(lab.begun.recv_timeout(LONG), Ok(5));
        lab.queued.write_all(b"never").unwrap();
        let begin = Instant::now();
        drop(lab.running);
        assert!(begin.elapsed() < LONG / 4);
        lab.may.send(()).unwrap();
        // The thread ends, and what it says by goes with it: it begins no second write.
        assert!(lab.begun.recv().is_err());
        assert_eq!(*lock(&lab.written), b"hangs");
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let mut lab = lab();
        drop(lab.may);
        lab.queued.write_all(b"lost").unwrap();
        assert_eq!(lab.begun.recv_timeout(LONG), Ok(4));
        drop(lab.running);
        assert_eq!(lab.counters.values()["dropped_bytes"], 4);
    }
}
