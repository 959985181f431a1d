// SPDX-License-Identifier: Apache-2.0
//! A snapshot that is being written, by a thread of its own: whoever owns the VM goes on hearing what is asked and what ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::call::Answer;
use super::error::{SnapshotError, VmmError};
use super::handle::{Caller, Reply};
use crate::chain::chain;
use crate::config::VmConfig;
use crate::devices::virtio::block::Written;
use crate::memory::GuestMemory;
use crate::memory::touched::Pagemap;
use crate::sandbox::{Jail, Kind};
use crate::state::{self, Unfinished, Whole, image};

/// Stack of the thread: what it copies is on the heap.
const STACK: usize = 256 << 10;

/// One that is being written. Dropping it gives it up: what there is of it is removed, and whoever has asked for it hears that the VM
/// is gone.
#[derive(Debug)]
pub(super) struct Writing {
    /// Its number.
    pub(super) snapshot: u64,
    _cancelled: Cancelled,
    destination: Unfinished,
    reply: Reply,
}

/// Dropped, it says so to the thread that writes.
#[derive(Debug)]
struct Cancelled(Arc<AtomicBool>);

/// What is written, and where it goes.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) destination: Unfinished,
    pub(super) whole: Whole<VmConfig>,
    pub(super) memory: GuestMemory,
    /// The files of the disks that the guest may write to, by their paths.
    pub(super) disks: Arc<[Written]>,
}

impl Writing {
    /// Begins to write `content`, as snapshot number `snapshot`. The thread is one of `jail`; `caller` is told of its end, then `reply`.
    pub(super) fn begin(
        snapshot: u64,
        content: Content,
        (caller, jail): (Caller, &Jail),
        reply: Reply,
    ) -> Result<Self, (SnapshotError, Reply)> {
        match start(snapshot, content, caller, jail) {
            Ok((cancelled, destination)) => Ok(Self { snapshot, _cancelled: cancelled, destination, reply }),
            Err(error) => Err((error, reply)),
        }
    }

    /// Its files are written, or not: it is there, or it is gone, and why.
    pub(super) fn finish(self, result: Result<(), SnapshotError>) -> Result<(), String> {
        let Self { destination, reply, .. } = self;
        let path = destination.path().to_owned();
        let finish = || destination.finish().map_err(|source| SnapshotError::Directory { path, source });
        let done = result.and_then(|()| finish());
        let why = done.as_ref().map_err(|error| chain(error)).copied();
        reply.send(done.map(|()| Answer::Done).map_err(VmmError::Snapshot));
        why
    }
}

/// Starts the thread.
fn start(
    snapshot: u64,
    Content { destination, whole, memory, disks }: Content,
    caller: Caller,
    jail: &Jail,
) -> Result<(Cancelled, Unfinished), SnapshotError> {
    let pagemap = Pagemap::open().map_err(SnapshotError::Begin)?;
    let files = destination.state.try_clone().and_then(|state| Ok((state, destination.memory.try_clone()?)));
    let (state, content) = files.map_err(SnapshotError::Begin)?;
    image::prepare(&memory, &content)?;
    let cancelled = Cancelled(Arc::default());
    let is_cancelled = Arc::clone(&cancelled.0);
    let (begin, inside) = jail.gate(Kind::Snapshot);
    let work = move || {
        let mut end = End { snapshot, caller, result: Err(SnapshotError::Lost) };
        if begin().is_none() {
            return;
        }
        let image = || image::write(&memory, &pagemap, &content, whole.id, &is_cancelled);
        let image = || image().and_then(|()| Ok(content.sync_all()?)).map_err(SnapshotError::Image);
        // Last, and after it nothing but a name: whoever finds it finds all.
        let state = || state::write(&whole, &state).and_then(|()| state.sync_all()).map_err(SnapshotError::State);
        end.result = make_safe(&disks).and_then(|()| image()).and_then(|()| state());
    };
    let thread = thread::Builder::new().name("snapshot".to_owned()).stack_size(STACK).spawn(work);
    thread.map_err(SnapshotError::Begin)?;
    inside.wait()?;
    Ok((cancelled, destination))
}

/// What the guest has written to `disks` is as safe as the snapshot: its memory takes as written what waits in the host's page cache,
/// and only the guest of today would ask for it to be made safe. Nothing of it is in flight, as the VM rests.
fn make_safe(disks: &[Written]) -> Result<(), SnapshotError> {
    let failed = |disk: &Written, source| SnapshotError::Disk { path: disk.path.clone(), source };
    disks.iter().try_for_each(|disk| disk.make_safe().map_err(|source| failed(disk, source)))
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Tells of the thread's end, whichever way.
struct End {
    snapshot: u64,
    caller: Caller,
    result: Result<(), SnapshotError>,
}

impl Drop for End {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(SnapshotError::Lost));
        self.caller.written(self.snapshot, result);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::devices::virtio::block::Lost;

    #[test]
    fn a_disk_that_is_not_safe_is_named() {
        let disk = |path: &str, file| Written { path: path.to_owned(), file, lost: Lost::default() };
        let safe = || disk("a", tempfile::tempfile().unwrap());
        // What cannot be synced.
        let unsafe_one = disk("b", File::open("/dev/null").unwrap());
        assert!(make_safe(&[safe(), safe()]).is_ok());
        let line = chain(&make_safe(&[safe(), unsafe_one]).unwrap_err());
        assert!(line.starts_with("disk b: what the guest has written to it cannot be made safe: "), "{line}");
    }
}
