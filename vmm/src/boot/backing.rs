// SPDX-License-Identifier: Apache-2.0
//! From the plan to memory that is there.

use std::sync::Arc;

use vm_memory::GuestMemoryBackend;

use super::error::{BootError, RestoreError};
use crate::memory::guest::{self, MapError};
use crate::memory::prefault::{self, PrefaultError, Prefaulting};
use crate::memory::touched::Pagemap;
use crate::memory::{GuestMemory, HostPages, MemoryPlan, Prefault};
use crate::state::image::ImageError;
use crate::timeline::Timeline;

/// Maps memory; huge pages are asked for before any page of it is there.
pub(super) fn map(plan: &MemoryPlan) -> Result<GuestMemory, MapError> {
    let memory = guest::map_and_reserve(plan.slots(), plan.held())?;
    for &range in &plan.backing().thp {
        if let Err(error) = guest::advise_huge(&memory, range) {
            // As on a host that has none: it costs speed, nothing else.
            tracing::info!(%range, %error, "no transparent huge pages");
        }
    }
    Ok(memory)
}

/// Begins to bring what a VM is restored from into the host's memory: each page that is not zero. They stay those of the file, which
/// other VMs share, until the guest writes to them.
pub(super) fn prefault_image(memory: &GuestMemory, timeline: &Arc<Timeline>) -> Result<Prefaulting, BootError> {
    let pagemap = Pagemap::open().map_err(ImageError::Io).map_err(RestoreError::Image)?;
    let mut ranges = Vec::new();
    for region in memory.iter() {
        let add = |range| {
            ranges.push(range);
            Ok(())
        };
        pagemap.visit(region, add).map_err(RestoreError::Image)?;
    }
    let timeline = Arc::clone(timeline);
    let done = move || timeline.phase("memory prefaulted");
    Ok(prefault::start(memory, &ranges, HostPages::Base, Prefault::All, done)?)
}

/// Begins to back what must be there before the guest runs.
pub(super) fn prefault(
    plan: &MemoryPlan,
    memory: &GuestMemory,
    timeline: &Arc<Timeline>,
) -> Result<Prefaulting, PrefaultError> {
    let timeline = Arc::clone(timeline);
    let done = move || timeline.phase("memory prefaulted");
    prefault::start(memory, &plan.backing().prefault, plan.largest_pages(), plan.input().prefault, done)
}
