// SPDX-License-Identifier: Apache-2.0
//! How sure a ratio of two medians is: the percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap,
//! chapter 13).

use std::cmp::Ordering;
use std::fmt;

use fastrand::Rng;

use super::{median, ratio};

/// How often both sets of samples are drawn anew.
pub const RESAMPLES: usize = 20_000;

/// With fewer samples than this on a side nothing can be shown at 95 %: even the whole range of five samples misses their
/// true median in 1 of 16 cases.
pub const LEAST_SAMPLES: usize = 6;

/// So often an interval shows a difference by chance where there is none.
pub const CHANCE: f64 = 0.05;

/// Any fixed value: the same samples give the same interval.
const SEED: u64 = 0x666c_6174_626f_6f74;

/// The ratio of two medians, and what it would have been with other samples like these.
#[derive(Debug, Clone)]
pub struct Resampled {
    /// The ratio of the medians of the samples themselves.
    pub ratio: f64,
    /// Ascending; one for each time that both sets were drawn anew.
    ratios: Vec<f64>,
}

/// The ends of a confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Resampled {
    /// The median of `above` over that of `below`, both in ascending order; none if one of them is empty or has a zero.
    #[must_use]
    pub fn ratio_of_medians(above: &[u64], below: &[u64]) -> Option<Self> {
        Self::redrawn(above, below, RESAMPLES)
    }

    pub(crate) fn redrawn(above: &[u64], below: &[u64], resamples: usize) -> Option<Self> {
        if above.first() == Some(&0) || below.first() == Some(&0) {
            return None;
        }
        let ratio_now = ratio(median(above)?, median(below)?)?;
        let mut rng = Rng::with_seed(SEED);
        let mut scratch = Vec::with_capacity(above.len().max(below.len()));
        let mut ratios: Vec<f64> = (0..resamples)
            .filter_map(|_| {
                let above = redrawn_median(above, &mut rng, &mut scratch)?;
                ratio(above, redrawn_median(below, &mut rng, &mut scratch)?)
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        Some(Self { ratio: ratio_now, ratios })
    }

    /// The interval that leaves out [`CHANCE`], if the fewer samples of the two sides, `n`, are enough to show anything.
    #[must_use]
    pub fn shown(&self, n: usize) -> Option<Interval> {
        (n >= LEAST_SAMPLES).then(|| self.interval(CHANCE))
    }

    /// The interval that leaves out `chance` of the redrawn ratios, half of it at each end.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count of resamples, and a part of it"
    )]
    pub fn interval(&self, chance: f64) -> Interval {
        let beyond = (self.ratios.len() as f64 * chance.clamp(0.0, 1.0) / 2.0) as usize;
        let at = |index: usize| self.ratios.get(index).copied().unwrap_or(self.ratio);
        let last = self.ratios.len().saturating_sub(1);
        Interval { low: at(beyond.min(last)), high: at(last.saturating_sub(beyond)) }
    }
}

impl Interval {
    /// Which way the ratio is shown to differ from 1, if it is: [`Ordering::Less`] if all of the interval is below.
    #[must_use]
    pub fn differs(self) -> Option<Ordering> {
        match (self.low > 1.0, self.high < 1.0) {
            (true, _) => Some(Ordering::Greater),
            (_, true) => Some(Ordering::Less),
            _ => None,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} – {:.3}", self.low, self.high)
    }
}

/// The median of as many values as there are, each drawn from all of them.
fn redrawn_median(sorted: &[u64], rng: &mut Rng, scratch: &mut Vec<usize>) -> Option<u64> {
    scratch.clear();
    scratch.extend((0..sorted.len()).map(|_| rng.usize(..sorted.len())));
    // The values are in order, so their places are as good as they are.
    let (below, &mut place, _) = scratch.select_nth_unstable(sorted.len() / 2);
    let upper = *sorted.get(place)?;
    match sorted.len() % 2 {
        1 => Some(upper),
        _ => Some(u64::midpoint(*sorted.get(*below.iter().max()?)?, upper)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` values around 1 s, in ascending order: a normal distribution (Box and Muller) with a deviation of 3 %.
    fn normal(rng: &mut Rng, n: usize) -> Vec<u64> {
        let mut one = || (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "around 1e9")]
        let mut values: Vec<_> = (0..n).map(|_| (1e9 * (1.0 + 0.03 * one())) as u64).collect();
        values.sort_unstable();
        values
    }

    #[test]
    fn redrawn_medians_have_the_chances_that_can_be_counted() {
        // Of three values the smallest is the median of three draws in 7 of 27 cases: when it is drawn twice or thrice.
        let three = Resampled::ratio_of_medians(&[20, 30, 40], &[10]).unwrap();
        let is = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let share = |ratio: f64| {
            let number = three.ratios.iter().filter(|redrawn| is(**redrawn, ratio)).count();
            f64::from(u32::try_from(number).unwrap()) / f64::from(u32::try_from(RESAMPLES).unwrap())
        };
        assert!(is(three.ratio, 3.0));
        for (ratio, of_27) in [(2.0, 7.0), (3.0, 13.0), (4.0, 7.0)] {
            assert!((share(ratio) - of_27 / 27.0).abs() < 0.015, "{ratio}: {}", share(ratio));
        }
        // Of five it is in 5.79 % of the cases: 10 (1/5)^3 (4/5)^2 + 5 (1/5)^4 (4/5) + (1/5)^5.
        let five = Resampled::ratio_of_medians(&[10, 20, 30, 40, 50], &[10]).unwrap();
        assert_eq!(five.interval(0.10), Interval { low: 1.0, high: 5.0 });
        assert_eq!(five.interval(0.14), Interval { low: 2.0, high: 4.0 });
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        // 95 % of 400 intervals are 380, with a deviation of 4.4. Few samples make them a little wide, never narrow.
        let mut rng = Rng::with_seed(1);
        for n in [6, 10, 25] {
            let held = (0..400)
                .filter(|_| {
                    let (a, b) = (normal(&mut rng, n), normal(&mut rng, n));
                    let interval = Resampled::redrawn(&a, &b, 1000).unwrap().interval(0.05);
                    (interval.low..=interval.high).contains(&1.0)
                })
                .count();
            assert!((367..=395).contains(&held), "n {n}: {held} of 400");
        }
    }

    #[test]
    fn intervals_repeat_and_scale_with_the_samples() {
        let mut rng = Rng::with_seed(2);
        let (a, b) = (normal(&mut rng, 10), normal(&mut rng, 9));
        let tenfold: Vec<_> = a.iter().map(|value| value * 10).collect();
        let of = |above: &[u64]| Resampled::ratio_of_medians(above, &b).unwrap().interval(0.05);
        assert_eq!(of(&a), of(&a));
        assert!((of(&tenfold).low / of(&a).low - 10.0).abs() < 1e-6);
        assert!(of(&a).low < of(&a).high);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        for (above, below) in [(&[][..], &[1][..]), (&[1], &[]), (&[0, 1], &[1]), (&[1], &[0, 1])] {
            assert!(Resampled::ratio_of_medians(above, below).is_none());
        }
        let huge = Resampled::ratio_of_medians(&[u64::MAX], &[1]).unwrap();
        assert!(huge.ratio.is_finite() && huge.interval(0.0) == Interval { low: huge.ratio, high: huge.ratio });
    }
}
