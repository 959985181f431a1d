// SPDX-License-Identifier: Apache-2.0
//! The samples of each variant, together.

use super::format::{End, Results, Sample, Variant};

/// One variant and what came of it.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The variant.
    pub variant: &'a Variant,
    /// Its boots that count, in the order in which they ran.
    pub samples: Vec<&'a Sample>,
    /// Boots after the warm-up round that did not reach init.
    pub failed: usize,
    /// Why the last of them did not.
    pub last_failure: Option<&'a str>,
}

/// One group for each variant of the sweep, in its order.
#[must_use]
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    let empty = |variant| Group { variant, samples: Vec::new(), failed: 0, last_failure: None };
    let mut groups: Vec<_> = results.sweep.variants.iter().map(empty).collect();
    for boot in results.boots.iter().filter(|boot| boot.round > 0) {
        let Some(group) = groups.get_mut(boot.variant) else { continue };
        match &boot.end {
            End::Init(sample) => group.samples.push(sample),
            End::Failed { why, .. } => {
                group.failed += 1;
                group.last_failure = Some(why);
            }
        }
    }
    groups
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
