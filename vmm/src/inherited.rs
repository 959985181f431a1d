// SPDX-License-Identifier: Apache-2.0
//! Files that this process was started with, by their number.
#![expect(unsafe_code, reason = "a number becomes a descriptor")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Input, output and errors have other uses.
const FIRST: i32 = 3;
/// How far it is looked where the host does not list them.
const LOOKS: i32 = 1024;

/// The numbers that were open when this process began to execute; unknown where nobody has looked.
static THERE: OnceLock<BTreeSet<i32>> = OnceLock::new();

/// Looks which files there are, before any is opened here: a number that comes later is one of this process's own, and no client
/// who says it is to have that.
pub fn remember() {
    THERE.get_or_init(there);
}

/// The numbers that are open now.
fn there() -> BTreeSet<i32> {
    let listed = fs::read_dir("/proc/self/fd").map(|entries| -> Vec<i32> {
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    });
    // The list was a file, too, which is closed by now.
    let numbers = listed.unwrap_or_else(|_| (FIRST..LOOKS).collect());
    numbers.into_iter().filter(|number| *number >= FIRST && is_open(*number)).collect()
}

fn is_open(number: i32) -> bool {
    // SAFETY: the call touches no memory; a number that is no descriptor is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0
}

/// Another descriptor for what was inherited as number `number`, which stays as it is.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    if THERE.get().is_some_and(|there| !there.contains(&number)) {
        return Err(io::Error::new(ErrorKind::NotFound, "was not open when this process was started"));
    }
    // SAFETY: the call touches no memory; a number that is no descriptor is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_there_can_be_used_and_what_is_not_is_an_error() {
        let (mut reader, writer) = io::pipe().unwrap();
        File::from(duplicate(writer.as_raw_fd()).unwrap()).write_all(b"x").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert_eq!(duplicate(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn what_is_open_is_seen() {
        // Far from what other tests open and close.
        let (reader, _writer) = io::pipe().unwrap();
        // SAFETY: the call touches no memory.
        let far = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900) };
        assert!(far >= 900);
        let numbers = there();
        assert!(numbers.contains(&far) && numbers.contains(&reader.as_raw_fd()));
        assert!(!numbers.contains(&0) && !numbers.contains(&(far + 1)), "{numbers:?}");
        // SAFETY: the number is this test's own.
        drop(unsafe { OwnedFd::from_raw_fd(far) });
        assert!(!there().contains(&far));
    }
}
