// SPDX-License-Identifier: Apache-2.0
//! A writer for what a guest may say without end.

use std::io::{self, Write};
use std::sync::Arc;

use crate::observe::devices::SerialCounters;

/// Writes so many bytes and drops the rest: whoever writes does not notice.
#[derive(Debug)]
pub struct Capped<W> {
    to: W,
    left: u64,
    told: bool,
    counters: Arc<SerialCounters>,
}

impl<W: Write> Capped<W> {
    /// Lets `left` bytes through to `to`, and counts them and the others by `counters`.
    pub const fn new(to: W, left: u64, counters: Arc<SerialCounters>) -> Self {
        Self { to, left, told: false, counters }
    }
}

impl<W: Write> Write for Capped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let written = match bytes.get(..room.min(bytes.len())) {
            Some(fits) if !fits.is_empty() => {
                self.to.write(fits).inspect_err(|_| self.counters.dropped(fits.len() as u64))?
            }
            _ => {
                if !bytes.is_empty() && !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(
                        "serial output: the file has reached its limit (serial_limit): what comes now is dropped"
                    );
                }
                self.counters.dropped(bytes.len() as u64);
                return Ok(bytes.len());
            }
        };
        self.left -= written as u64;
        self.counters.written(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::devices::DeviceCounters as _;

    #[test]
    fn what_is_not_taken_is_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let counters = Arc::<SerialCounters>::default();
        let mut capped = Capped::new(Full, 10, Arc::clone(&counters));
        assert!(capped.write_all(b"abc").is_err());
        assert_eq!(counters.values(), [("write_bytes", 0), ("dropped_bytes", 3)].into());
    }

    #[test]
    fn the_rest_is_dropped_in_silence() {
        for (left, expected) in
            [(0, ""), (3, "abc"), (4, "abcd"), (5, "abcde"), (9, "abcdefghi"), (100, "abcdefghijkl")]
        {
            let (mut file, counters) = (Vec::new(), Arc::<SerialCounters>::default());
            let mut capped = Capped::new(&mut file, left, Arc::clone(&counters));
            for part in ["abc", "", "def", "ghijkl"] {
                capped.write_all(part.as_bytes()).unwrap();
            }
            capped.flush().unwrap();
            let whole = expected.len() as u64;
            assert_eq!(counters.values(), [("write_bytes", whole), ("dropped_bytes", 12 - whole)].into());
            assert_eq!(String::from_utf8(file).unwrap(), expected);
        }
    }
}
