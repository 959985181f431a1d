// SPDX-License-Identifier: Apache-2.0
//! From the plan to memory that is there.

use std::sync::Arc;

use crate::memory::guest::{self, MapError};
use crate::memory::prefault::{self, PrefaultError, Prefaulting};
use crate::memory::{GuestMemory, MemoryPlan};
use crate::timeline::Timeline;

/// Maps memory; huge pages are asked for before any page of it is there.
pub(super) fn map(plan: &MemoryPlan) -> Result<GuestMemory, MapError> {
    let memory = guest::map(plan.slots())?;
    for &range in &plan.backing().thp {
        if let Err(error) = guest::advise_huge(&memory, range) {
            // As on a host that has none: it costs speed, nothing else.
            tracing::info!(%range, %error, "no transparent huge pages");
        }
    }
    Ok(memory)
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
