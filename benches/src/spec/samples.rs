// SPDX-License-Identifier: Apache-2.0
//! Raw samples and what is read off them.

use std::fmt::Write;

use serde::Serialize;

use crate::guest::Timeline;
use crate::once::each_once;
use crate::stats;

/// One boot.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// Which variant it is of.
    pub variant: String,
    /// All its marks.
    pub timeline: Timeline,
}

/// All boots of one measurement, in the order in which they were run.
#[derive(Debug, Default, Serialize)]
pub struct Samples {
    all: Vec<Sample>,
}

impl Samples {
    /// Adds one.
    pub fn push(&mut self, sample: Sample) {
        self.all.push(sample);
    }

    /// The boots of `variant`, in the order of the rounds.
    fn of<'a>(&'a self, variant: &'a str) -> impl Iterator<Item = &'a Timeline> {
        self.all.iter().filter(move |sample| sample.variant == variant).map(|sample| &sample.timeline)
    }

    /// The values that `read` gives for the boots of `variant`, sorted.
    fn values(&self, variant: &str, read: impl Fn(&Timeline) -> Option<u64>) -> Vec<u64> {
        let mut values: Vec<_> = self.of(variant).filter_map(read).collect();
        values.sort_unstable();
        values
    }

    /// Median nanoseconds of `step` (two marks) for `variant`.
    #[must_use]
    pub fn median(&self, variant: &str, step: (&str, &str)) -> Option<u64> {
        stats::median(&self.values(variant, |timeline| timeline.between(step.0, step.1)))
    }

    /// Median number of host page faults during `step`.
    #[must_use]
    pub fn median_faults(&self, variant: &str, step: (&str, &str)) -> Option<u64> {
        stats::median(&self.values(variant, |timeline| timeline.faults_between(step.0, step.1)))
    }

    /// Median of the ratios of two variants within each round; none if a boot lacks a mark.
    #[must_use]
    pub fn ratio(&self, above: &str, below: &str, step: (&str, &str)) -> Option<f64> {
        let steps =
            |variant| self.of(variant).map(|timeline| timeline.between(step.0, step.1)).collect::<Option<Vec<_>>>();
        stats::ratio_by_round(&steps(above)?, &steps(below)?)
    }

    /// A row a variant: samples, minimum, median, 95th percentile of `step` in milliseconds, host faults, init.
    #[must_use]
    pub fn table(&self, step: (&str, &str)) -> String {
        let names = each_once(self.all.iter().map(|sample| sample.variant.as_str()));
        let mut table = format!(
            "{:<28} {:>3} {:>10} {:>10} {:>10} {:>12} {:>12}\n",
            "variant", "n", "min ms", "median ms", "p95 ms", "host faults", "init ms"
        );
        for name in names {
            let values = self.values(name, |timeline| timeline.between(step.0, step.1));
            let init = stats::median(&self.values(name, |timeline| timeline.init_ns));
            let _ = writeln!(
                table,
                "{name:<28} {:>3} {:>10} {:>10} {:>10} {:>12} {:>12}",
                values.len(),
                milliseconds(values.first().copied()),
                milliseconds(stats::median(&values)),
                milliseconds(stats::percentile(&values, 95)),
                self.median_faults(name, step).map_or_else(String::new, |faults| faults.to_string()),
                milliseconds(init)
            );
        }
        table
    }
}

/// Nanoseconds as milliseconds with two digits after the point.
pub(super) fn milliseconds(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{}.{:02}", ns / 1_000_000, ns / 10_000 % 100))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::guest::Mark;

    /// Boots of which each took so many nanoseconds from mark "a" to mark "b".
    pub(crate) fn samples(boots: &[(&str, u64)]) -> Samples {
        let mark = |ns, name: &str| Mark { ns, host_faults: Some(ns / 2), name: name.to_owned(), source: None };
        let sample = |(variant, ns): &(&str, u64)| Sample {
            variant: (*variant).to_owned(),
            timeline: Timeline {
                init_ns: Some(*ns),
                zero_monotonic_ns: 0,
                marks: vec![mark(10, "a"), mark(10 + ns, "b")],
            },
        };
        Samples { all: boots.iter().map(sample).collect() }
    }

    #[test]
    fn medians_and_ratios() {
        let samples = samples(&[("x", 30), ("y", 10), ("x", 10), ("y", 10), ("x", 20), ("y", 30)]);
        let step = ("a", "b");
        assert_eq!((samples.median("x", step), samples.median("y", step)), (Some(20), Some(10)));
        // 30 / 10, 10 / 10 and 20 / 30, round by round.
        assert_eq!(samples.ratio("x", "y", step), Some(1.0));
        assert_eq!(samples.ratio("x", "y", ("a", "c")), None);
        assert_eq!(samples.median_faults("x", step), Some(10));
        assert_eq!(samples.ratio("x", "z", step), None);
        assert_eq!(samples.median("x", ("a", "c")), None);
    }
}
