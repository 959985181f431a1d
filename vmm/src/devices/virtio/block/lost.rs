// SPDX-License-Identifier: Apache-2.0
//! What was written and is lost. The host says so once to each open file, takes the pages of its cache for clean from then on, and
//! tells whoever flushes next that all is well.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something that was written to a disk is lost, for all who flush it.
#[derive(Debug, Clone, Default)]
pub struct Lost(Arc<AtomicBool>);

impl Lost {
    /// What has become of a flush that the host has done, with this `result`: none makes safe what was lost before.
    pub fn flushed(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.0.store(true, Ordering::Release);
        }
        if result.is_ok() && self.0.load(Ordering::Acquire) {
            return Err(io::Error::other("what was written before is lost"));
        }
        result
    }
}

/// The file of a disk that the guest may write to, opened for whoever makes safe what it has written.
#[derive(Debug)]
pub struct Written {
    /// Its path, for messages.
    pub path: String,
    /// The file.
    pub file: File,
    /// What its flushes have come to.
    pub lost: Lost,
}

impl Written {
    /// All that was written to it is safe when this returns.
    pub fn make_safe(&self) -> io::Result<()> {
        self.lost.flushed(self.file.sync_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_next_hears_of_it() {
        let lost = Lost::default();
        let disk = |file| Written { path: "disk".to_owned(), file, lost: lost.clone() };
        let good = disk(tempfile::tempfile().unwrap());
        good.make_safe().unwrap();
        // What cannot be synced.
        let bad = disk(File::open("/dev/null").unwrap());
        assert_eq!(bad.make_safe().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(good.make_safe().unwrap_err().to_string(), "what was written before is lost");
        assert_eq!(bad.make_safe().unwrap_err().raw_os_error(), Some(libc::EINVAL), "its own error is said");
    }
}
