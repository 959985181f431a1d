// SPDX-License-Identifier: Apache-2.0
//! Standard input, which can be left alone at any time: a VM that is over must not take what the next one is to read.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;

/// Standard input. It ends when its [`End`] is dropped.
#[derive(Debug)]
pub struct Input(PipeReader);

/// Ends an [`Input`] as it is dropped.
#[derive(Debug)]
pub struct End(#[expect(dead_code, reason = "to be dropped is what it is for")] PipeWriter);

impl Input {
    /// Standard input, and what ends it.
    pub fn new() -> io::Result<(Self, End)> {
        let (reader, writer) = io::pipe()?;
        Ok((Self(reader), End(writer)))
    }
}

impl Read for Input {
    /// Reads past any buffer: what that held could not be waited for.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut waits = [PollFd::new(&self.0, PollFlags::IN), PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [over, ready] = waits.map(|wait| !wait.revents().is_empty());
            if over {
                return Ok(0);
            }
            if ready {
                return Ok(rustix::io::read(stdin(), bytes)?);
            }
        }
    }
}

/// Bytes that are passed on at once.
const PIECE: usize = 256;
/// Stack of the thread, which reads and writes and does little else.
const STACK: usize = 64 << 10;

/// Passes `input` on to whoever reads from `pipe`, by a thread, until the one ends or nobody reads the other. What does not fit into
/// the pipe waits. `begin` is the first that the thread does; it ends if there is nothing to keep.
pub fn pass_on<G>(
    mut input: Box<dyn Read + Send>,
    mut pipe: PipeWriter,
    begin: impl FnOnce() -> Option<G> + Send + 'static,
) -> io::Result<()> {
    let pass = move || {
        let Some(_kept) = begin() else { return };
        let mut piece = [0; PIECE];
        loop {
            match input.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => {
                    if pipe.write_all(piece.get(..count).unwrap_or_default()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "console input ends");
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("console-input".to_owned()).stack_size(STACK).spawn(pass).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_waits_for_whoever_reads() {
        let (mut reader, writer) = io::pipe().unwrap();
        let typed = vec![b'k'; 1 << 20];
        pass_on(Box::new(io::Cursor::new(typed.clone())), writer, || Some(())).unwrap();
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == typed, "{} bytes", read.len());
    }

    #[test]
    fn without_leave_nothing_is_taken() {
        let (mut reader, writer) = io::pipe().unwrap();
        pass_on(Box::new(io::repeat(b'k')), writer, || None::<()>).unwrap();
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn it_ends_when_nobody_wants_it() {
        let (mut input, end) = Input::new().unwrap();
        drop(end);
        assert_eq!(input.read(&mut [0; 8]).unwrap(), 0);

        let (mut input, end) = Input::new().unwrap();
        // Whatever this test's standard input is, the thread comes back.
        let reader = thread::spawn(move || while input.read(&mut [0; 8]).is_ok_and(|count| count > 0) {});
        drop(end);
        reader.join().unwrap();
    }
}
