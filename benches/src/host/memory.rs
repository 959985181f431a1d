// SPDX-License-Identifier: Apache-2.0
//! The emulated machine's memory, which one host of this process leaves to the next.
//!
//! A real machine's memory is there. An emulated machine's is backed page by page when it is first touched, and what that
//! costs depends on the machine below (docs/measuring.md); it would be measured instead of the guest. So the memory is a file
//! without a name that stays; a host finds in it what the one before has left, as after a warm reset.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, process};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::system::sysinfo;

/// Of this machine's memory, how much may be kept for hosts to come: one part in so many.
const KEPT_SHARE: u64 = 2;

/// What no host uses right now.
static KEPT: Mutex<Vec<HostMemory>> = Mutex::new(Vec::new());

/// Memory of one host, which must have ended when this is dropped: then it is the next one's.
#[derive(Debug)]
pub(super) struct Lent(HostMemory);

#[derive(Debug, Clone)]
struct HostMemory {
    file: Arc<OwnedFd>,
    mib: u64,
}

impl Lent {
    /// What a host of this size has left, else new memory.
    pub(super) fn take(mib: u64) -> io::Result<Self> {
        let mut kept = kept();
        if let Some(index) = kept.iter().rposition(|memory| memory.mib == mib) {
            return Ok(Self(kept.remove(index)));
        }
        let file = memfd_create("flatboot-host", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, mib << 20)?;
        Ok(Self(HostMemory { file: Arc::new(file), mib }))
    }

    /// Where a process of this user finds it.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.0.file.as_raw_fd()).into()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut kept = kept();
        kept.push(self.0.clone());
        // What was left longest ago goes first.
        while kept.iter().map(HostMemory::backed).fold(0, u64::saturating_add) > most_kept() {
            kept.remove(0);
        }
    }
}

impl HostMemory {
    /// Bytes of it that are backed.
    fn backed(&self) -> u64 {
        fstat(&self.file).map_or(u64::MAX, |stat| u64::try_from(stat.st_blocks).unwrap_or(u64::MAX).saturating_mul(512))
    }
}

fn kept() -> MutexGuard<'static, Vec<HostMemory>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn most_kept() -> u64 {
    let system = sysinfo();
    system.totalram.saturating_mul(u64::from(system.mem_unit)) / KEPT_SHARE
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// A size that no other test of this process uses.
    const MIB: u64 = 257;

    #[test]
    fn one_host_leaves_its_memory_to_the_next_and_two_at_a_time_share_none() {
        let take = || Lent::take(MIB).unwrap();
        let open = |memory: &Lent| File::options().read(true).write(true).open(memory.path()).unwrap();
        let read = |memory: &Lent| {
            let mut byte = [0];
            open(memory).read_exact_at(&mut byte, 4096).unwrap();
            byte[0]
        };
        let first = take();
        assert_eq!(open(&first).metadata().unwrap().len(), 257 << 20);
        open(&first).write_all_at(&[7], 4096).unwrap();
        let beside = take();
        assert_eq!((read(&first), read(&beside)), (7, 0));
        drop(first);
        assert_eq!(read(&take()), 7);
        let other_size = Lent::take(MIB + 1).unwrap();
        assert_eq!(open(&other_size).metadata().unwrap().len(), 258 << 20);
    }
}
