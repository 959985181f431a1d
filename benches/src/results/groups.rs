// SPDX-License-Identifier: Apache-2.0
//! The samples of each variant, together.

use super::{End, Results, Sample, Variant};

/// One variant and what came of it.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The variant.
    pub variant: &'a Variant,
    /// Its boots that count, in the order in which they ran.
    pub samples: Vec<&'a Sample>,
    /// Boots after the warm-up round that did not reach init.
    pub failed: usize,
}

/// One group for each variant of the sweep, in its order.
#[must_use]
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    let group = |(index, variant)| {
        let boots = || results.boots.iter().filter(move |boot| boot.variant == index && boot.round > 0);
        Group {
            variant,
            samples: boots().filter_map(|boot| boot.sample()).collect(),
            failed: boots().filter(|boot| matches!(boot.end, End::Failed { .. })).count(),
        }
    };
    results.sweep.variants.iter().enumerate().map(group).collect()
}

impl Group<'_> {
    /// Nanoseconds to init, ascending.
    #[must_use]
    pub fn inits(&self) -> Vec<u64> {
        self.values(|sample| Some(sample.init_ns))
    }

    /// Host memory at init in bytes, ascending.
    #[must_use]
    pub fn memory(&self) -> Vec<u64> {
        self.values(|sample| Some(sample.host_memory_bytes))
    }

    /// What `read` gives for each sample, ascending.
    #[must_use]
    pub fn values(&self, read: impl Fn(&Sample) -> Option<u64>) -> Vec<u64> {
        let mut values: Vec<_> = self.samples.iter().filter_map(|sample| read(sample)).collect();
        values.sort_unstable();
        values
    }
}
