// SPDX-License-Identifier: Apache-2.0
//! Locks on disk images: one VM may write a disk, or any number may read it.
//!
//! They are open file description locks over the whole file, as Cloud Hypervisor and QEMU have them: they go with the open file,
//! however the process ends, and hold between processes and within one.
#![expect(unsafe_code, reason = "fcntl(F_OFD_SETLK) has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What a lock came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    /// It is held until the file is closed.
    Held,
    /// Another open file has one that excludes it.
    Taken,
    /// This file system has no locks.
    None,
}

/// Locks `file`, against everybody else if it is to be `written`, else against writers. Never waits.
pub(super) fn lock(file: &File, written: bool) -> io::Result<Lock> {
    let kind = if written { libc::F_WRLCK } else { libc::F_RDLCK };
    let description = libc::flock {
        // All three are 0 to 2.
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        // Zero bytes mean: to the end, wherever that will be.
        l_start: 0,
        l_len: 0,
        // Must be 0 for these locks.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the kernel only reads the structure, which is initialized
    // and outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const description) };
    if result == 0 {
        return Ok(Lock::Held);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(Lock::Taken),
        Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => Ok(Lock::None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(path.path()).unwrap();
        let (writer, reader, other) = (open(), open(), open());
        assert_eq!(lock(&writer, true).unwrap(), Lock::Held);
        assert_eq!(lock(&writer, true).unwrap(), Lock::Held, "again, by the same one");
        assert_eq!([lock(&reader, false).unwrap(), lock(&other, true).unwrap()], [Lock::Taken; 2]);
        // It goes with the last handle of the open file.
        let clone = writer.try_clone().unwrap();
        drop(writer);
        assert_eq!(lock(&reader, false).unwrap(), Lock::Taken);
        drop(clone);
        assert_eq!([lock(&reader, false).unwrap(), lock(&other, false).unwrap()], [Lock::Held; 2]);
        assert_eq!(lock(&other, true).unwrap(), Lock::Taken);
    }
}
