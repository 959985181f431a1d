// SPDX-License-Identifier: Apache-2.0
//! Something that is counted as long as it is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of so many.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// One more.
    #[must_use]
    pub fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }

    /// One more, if there are less than `most`.
    #[must_use]
    pub fn below(most: usize, count: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |now| (now < most).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(Arc::clone(count)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
