// SPDX-License-Identifier: Apache-2.0
//! How a VM that rests is saved: what it is, is asked of everybody here; what is in its memory is written by a thread.

use std::path::Path;

use super::error::{SnapshotError, VmmError};
use super::handle::Reply;
use super::lifecycle::{NotNow, State};
use super::live::Live;
use super::writing::{Content, Writing};
use super::{Kept, Stage, Vmm};
use crate::chain::chain;
use crate::state::image::Id;
use crate::state::{Unfinished, Whole};
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};

impl Vmm {
    /// Begins to save the VM; `reply` is told when that is over.
    pub(super) fn snapshot(&mut self, path: &Path, reply: Reply) {
        let content = match self.content(path) {
            Ok(content) => content,
            Err(error) => return reply.send(Err(error)),
        };
        self.snapshots += 1;
        self.events.vm("snapshotting");
        match Writing::begin(self.snapshots, content, (self.caller(), &self.jail), reply) {
            Ok(writing) => self.writing = Some(writing),
            Err((error, reply)) => {
                self.events.failed("snapshot-failed", &chain(&error));
                reply.send(Err(error.into()));
            }
        }
    }

    /// The thread of snapshot number `snapshot` has ended.
    pub(super) fn written(&mut self, snapshot: u64, result: Result<(), SnapshotError>) {
        let Some(writing) = self.writing.take_if(|writing| writing.snapshot == snapshot) else { return };
        match writing.finish(result) {
            Ok(()) => self.events.vm("snapshotted"),
            Err(why) => self.events.failed("snapshot-failed", &why),
        }
        // Whoever was asked to power off meanwhile could not hear it.
        self.live().into_iter().for_each(Live::is_asked_from_now_on);
    }

    /// The VM is over.
    pub(super) fn give_up_saving(&mut self) {
        if self.writing.take().is_some() {
            self.events.failed("snapshot-failed", "the VM is over");
        }
    }

    /// All that is to be written, and where. The VM must rest.
    fn content(&self, path: &Path) -> Result<Content, VmmError> {
        let Kept { config, stage, .. } = self.vm.as_ref().ok_or(VmmError::NotCreated)?;
        if self.writing.is_some() {
            return Err(VmmError::Writing);
        }
        let live = match stage {
            Stage::Live(live) if live.state() == State::Paused => live,
            Stage::Live(live) => return Err(NotNow { state: live.state(), must: "paused" }.into()),
            Stage::Created => return Err(NotNow { state: State::Created, must: "paused" }.into()),
            Stage::Over => return Err(NotNow { state: State::Ended, must: "paused" }.into()),
        };
        config.check_savable().map_err(SnapshotError::Config)?;
        let (machine, devices) = live.save().map_err(SnapshotError::Save)?;
        let (memory, disks) = (live.memory().clone(), live.written());
        let pieces = memory.iter().map(|region| (region.start_addr().raw_value(), region.there()));
        // Of held memory there may be none.
        let pieces = pieces.filter(|(_, length)| *length > 0).collect();
        let id = Id::new().map_err(SnapshotError::Begin)?;
        let destination = Unfinished::begin(path);
        let destination = destination.map_err(|source| SnapshotError::Directory { path: path.to_owned(), source })?;
        let whole = Whole { id, config: config.clone(), memory: pieces, machine, devices };
        Ok(Content { destination, whole, memory, disks })
    }
}
