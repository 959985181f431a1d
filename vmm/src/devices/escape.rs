// SPDX-License-Identifier: Apache-2.0
//! Keys that are not for the guest: while the terminal is raw, even Ctrl-C is, and there must be a way out.

use std::fmt;
use std::io::{self, Read};

/// Ctrl-A, as QEMU has it.
const PREFIX: u8 = 0x01;

/// What to tell the user when the terminal becomes raw.
pub const HINT: &str = "Ctrl-A x ends the VM, Ctrl-A Ctrl-A is a Ctrl-A for the guest";

/// What is typed, without what is not for the guest: Ctrl-A x calls `end`, Ctrl-A twice is one Ctrl-A, and before any other key it
/// is as if it had not been typed.
pub struct Escape<R> {
    typed: R,
    end: Box<dyn FnMut() + Send>,
    /// The last key was the prefix.
    prefixed: bool,
}

impl<R> fmt::Debug for Escape<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Escape").field("prefixed", &self.prefixed).finish_non_exhaustive()
    }
}

impl<R: Read> Escape<R> {
    /// Takes keys from `typed`.
    pub fn new(typed: R, end: Box<dyn FnMut() + Send>) -> Self {
        Self { typed, end, prefixed: false }
    }

    /// Whether `key` is for the guest.
    fn passes(&mut self, key: u8) -> bool {
        match (std::mem::take(&mut self.prefixed), key) {
            (false, PREFIX) => {
                self.prefixed = true;
                false
            }
            (true, b'x' | b'X') => {
                (self.end)();
                false
            }
            _ => true,
        }
    }
}

impl<R: Read> Read for Escape<R> {
    /// Reads once. `Interrupted` if there was nothing for the guest: whoever reads may have other things to wait for.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.typed.read(buffer)?;
        let mut kept = 0;
        for at in 0..count {
            let Some(&key) = buffer.get(at) else { break };
            if self.passes(key)
                && let Some(slot) = buffer.get_mut(kept)
            {
                *slot = key;
                kept += 1;
            }
        }
        // Nothing read is the end of the input; nothing kept is not.
        if kept > 0 || count == 0 { Ok(kept) } else { Err(io::ErrorKind::Interrupted.into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// Gives one byte a read.
    struct Slowly<'a>(&'a [u8]);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1);
            (&mut self.0).read(&mut buffer[..count])
        }
    }

    /// What arrives of `typed`, and how often the VM was ended.
    fn arrives(typed: impl Read) -> (Vec<u8>, u32) {
        let ends = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&ends);
        let end = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let mut escape = Escape::new(typed, Box::new(end));
        let mut arrived = Vec::new();
        escape.read_to_end(&mut arrived).unwrap();
        (arrived, ends.load(Ordering::Relaxed))
    }

    #[test]
    fn only_the_prefix_and_x_end() {
        for (typed, arrived, ends) in [
            (&b"x\x03xX"[..], &b"x\x03xX"[..], 0),
            (b"ab\x01xcd", b"abcd", 1),
            (b"\x01X", b"", 1),
            (b"\x01\x01x", b"\x01x", 0),
            (b"\x01\x01\x01x", b"\x01", 1),
            (b"\x01cx", b"cx", 0),
            (b"a\x01", b"a", 0),
        ] {
            assert_eq!(arrives(typed), (arrived.to_vec(), ends), "{typed:?}");
            assert_eq!(arrives(Slowly(typed)), (arrived.to_vec(), ends), "{typed:?}, key by key");
        }
    }

    proptest! {
        #[test]
        fn without_the_prefix_every_byte_arrives(typed in prop::collection::vec(2u8.., 0..1000)) {
            prop_assert_eq!(arrives(&typed[..]), (typed.clone(), 0));
        }
    }
}
