// SPDX-License-Identifier: Apache-2.0
//! The variants of two files, side by side.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;

use crate::results::{Group, Results, Variant, groups};
use crate::stats::{Interval, LEAST_SAMPLES, Resampled, median};

/// One side of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The file.
    pub path: &'a Path,
    /// What is in it.
    pub results: &'a Results,
}

/// A variant that is in both files.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) a: Group<'a>,
    pub(super) b: Group<'a>,
    /// Median of A in ns, if it has samples.
    pub(super) median_a: Option<u64>,
    /// Median of B in ns, if it has samples.
    pub(super) median_b: Option<u64>,
    n: usize,
    /// B over A, if both have samples.
    pub(super) resampled: Option<Resampled>,
}

/// What a pair shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// B takes less time.
    Faster,
    /// B takes more time.
    Slower,
    /// Neither is shown.
    NoDifference,
    /// Too few samples for any verdict.
    TooFew,
}

/// All variants of two files.
#[derive(Debug)]
pub(super) struct Matched<'a> {
    pub(super) pairs: Vec<Pair<'a>>,
    pub(super) only_a: Vec<&'a Variant>,
    pub(super) only_b: Vec<&'a Variant>,
}

/// Pairs the variants of `a` with those of `b`.
pub(super) fn matched<'a>(a: &'a Results, b: &'a Results) -> Matched<'a> {
    let mut of_b: HashMap<&Variant, Group<'a>> = groups(b).into_iter().map(|group| (group.variant, group)).collect();
    let mut matched = Matched { pairs: Vec::new(), only_a: Vec::new(), only_b: Vec::new() };
    for group in groups(a) {
        match of_b.remove(group.variant) {
            Some(other) => matched.pairs.push(Pair::new(group, other)),
            None => matched.only_a.push(group.variant),
        }
    }
    matched.only_b = b.sweep.variants.iter().filter(|variant| of_b.contains_key(variant)).collect();
    matched
}

impl<'a> Pair<'a> {
    fn new(a: Group<'a>, b: Group<'a>) -> Self {
        let (inits_a, inits_b) = (a.independent_inits(), b.independent_inits());
        let resampled = Resampled::ratio_of_medians(&inits_b, &inits_a);
        let n = inits_a.len().min(inits_b.len());
        Self { median_a: median(&inits_a), median_b: median(&inits_b), n, resampled, a, b }
    }

    /// The fewer samples of the two sides; of fleets, the fewer rounds.
    pub(super) fn n(&self) -> usize {
        self.n
    }

    /// The redrawn ratios, if there are samples enough.
    pub(super) fn judged(&self) -> Option<&Resampled> {
        self.resampled.as_ref().filter(|_| self.n() >= LEAST_SAMPLES)
    }

    /// Where the ratio lies, if there are samples enough.
    pub(super) fn interval(&self) -> Option<Interval> {
        self.resampled.as_ref()?.shown(self.n())
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.interval().map(Interval::differs) {
            None => Verdict::TooFew,
            Some(Some(Ordering::Less)) => Verdict::Faster,
            Some(Some(_)) => Verdict::Slower,
            Some(None) => Verdict::NoDifference,
        }
    }
}
