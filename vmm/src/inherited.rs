// SPDX-License-Identifier: Apache-2.0
//! Files that this process was started with, by their number.
#![expect(unsafe_code, reason = "a number becomes a descriptor")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Input, output and errors have other uses.
const FIRST: i32 = 3;

/// Another descriptor for what was inherited as number `number`, which stays as it is.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
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
}
