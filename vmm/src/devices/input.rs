// SPDX-License-Identifier: Apache-2.0
//! Standard input, which can be left alone at any time: a VM that is over must not take what the next one is to read.

use std::io::{self, PipeReader, PipeWriter, Read};

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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

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
