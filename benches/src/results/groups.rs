// SPDX-License-Identifier: Apache-2.0
//! The samples of each variant, together.

use std::collections::BTreeMap;

use super::format::{End, Results, Sample, Variant};
use crate::stats::median;

/// One variant and what came of it.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    /// The variant.
    pub variant: &'a Variant,
    /// Its boots that count, in the order in which they ran.
    pub samples: Vec<&'a Sample>,
    /// The round of each of those.
    pub rounds: Vec<u32>,
    /// Boots after the warm-up round that did not reach init.
    pub failed: usize,
    /// Why the last of them did not.
    pub last_failure: Option<&'a str>,
}

/// One group for each variant of the sweep, in its order.
#[must_use]
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    let empty = |variant| Group { variant, samples: Vec::new(), rounds: Vec::new(), failed: 0, last_failure: None };
    let mut groups: Vec<_> = results.sweep.variants.iter().map(empty).collect();
    for boot in results.boots.iter().filter(|boot| boot.round > 0) {
        let Some(group) = groups.get_mut(boot.variant) else { continue };
        match &boot.end {
            End::Init(sample) => {
                group.samples.push(sample);
                group.rounds.push(boot.round);
            }
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

    /// What is compared, ascending: of each boot the nanoseconds to init; of a fleet the median of each round, because VMs that
    /// run at the same time are not independent of each other. A round in which some failed is left out: the others had more of the
    /// machine.
    #[must_use]
    pub fn independent_inits(&self) -> Vec<u64> {
        let Some(vms) = self.variant.vms else { return self.inits() };
        let rounds = self.by_round().into_values().filter(|round| round.len() >= vms as usize);
        ascending(rounds.filter_map(|round| median(&ascending(round.iter().map(|sample| sample.init_ns)))))
    }

    /// What `read` gives for each sample, ascending.
    #[must_use]
    pub fn values(&self, read: impl Fn(&Sample) -> Option<u64>) -> Vec<u64> {
        ascending(self.samples.iter().filter_map(|sample| read(sample)))
    }

    /// What `read` gives for this group and for `other` in each round in which it gives something for both, in order.
    pub(crate) fn paired(&self, other: &Self, read: impl Fn(&Sample) -> Option<u64>) -> (Vec<u64>, Vec<u64>) {
        let of_round = |group: &Self| -> BTreeMap<u32, u64> {
            let rounds = group.rounds.iter().zip(&group.samples);
            rounds.filter_map(|(round, sample)| Some((*round, read(sample)?))).collect()
        };
        let others = of_round(other);
        of_round(self).into_iter().filter_map(|(round, own)| Some((own, *others.get(&round)?))).unzip()
    }

    /// The samples of each round.
    pub(crate) fn by_round(&self) -> BTreeMap<u32, Vec<&Sample>> {
        let mut rounds: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (round, sample) in self.rounds.iter().zip(&self.samples) {
            rounds.entry(*round).or_default().push(*sample);
        }
        rounds
    }
}

fn ascending(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values
}
