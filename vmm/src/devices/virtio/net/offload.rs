// SPDX-License-Identifier: Apache-2.0
//! What the host was told that a guest takes of a tap, and how often it is told.

use std::ffi::c_uint;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::devices::virtio::limit::{Limiter, Rate};

/// Each change takes the lock that all interfaces of the host have in common; a driver can begin again as often as it likes.
const CHANGES: Rate = Rate { size: 16, one_time_burst: 0, refill_time: Duration::from_secs(1) };

/// The flags that the host has for a tap.
#[derive(Debug)]
pub(super) struct Told {
    /// Unknown until it was told some.
    flags: Option<c_uint>,
    changes: Limiter,
}

impl Default for Told {
    fn default() -> Self {
        Self { flags: None, changes: Limiter::new(None, Some(CHANGES)) }
    }
}

impl Told {
    /// Has the host `set` these flags, unless it has. Waits while there are too many changes: whose guest it is waits with it.
    pub(super) fn tell(&mut self, flags: c_uint, set: impl FnOnce(c_uint) -> io::Result<()>) -> io::Result<()> {
        if self.flags == Some(flags) {
            return Ok(());
        }
        thread::sleep(self.changes.wait(Instant::now()));
        self.changes.pay(0);
        self.flags = None;
        set(flags)?;
        self.flags = Some(flags);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_told_what_changes_and_only_so_often() {
        let (mut told, mut heard) = (Told::default(), Vec::new());
        let mut tell = |flags, refused: bool| {
            told.tell(flags, |flags| {
                heard.push(flags);
                if refused { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
            })
        };
        for flags in [1, 1, 1, 0, 0, 1] {
            tell(flags, false).unwrap();
        }
        tell(3, true).unwrap_err();
        tell(1, false).unwrap();
        let begin = Instant::now();
        (0..32).for_each(|flags| tell(flags, false).unwrap());
        // 37 changes, of which 16 are had at once.
        assert!(begin.elapsed() > Duration::from_secs(1), "{:?}", begin.elapsed());
        assert_eq!(heard[..5], [1, 0, 1, 3, 1], "what was refused may have changed something");
    }
}
