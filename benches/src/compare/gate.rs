// SPDX-License-Identifier: Apache-2.0
//! `--fail-above`: what is too slow, and with `--if-shown` only what noise alone does not do.

use std::fmt;
use std::str::FromStr;

use crate::results::Group;
use crate::stats::{CHANCE, LEAST_SAMPLES, Resampled};
use crate::sweep::describe;
use crate::terminal::plain;

use super::pairs::Pair;

/// A ratio above which a variant fails: finite and above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit(f64);

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ratio) if f64::is_finite(ratio) && ratio > 0.0 => Ok(Self(ratio)),
            _ => Err("must be a finite number above 0, such as 1.05".to_owned()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the limit says. Each entry is a variant and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    pub(super) limit: Limit,
    /// Only what is shown to be slower fails.
    pub(super) if_shown: bool,
    /// Above the limit, and, if that is asked for, shown to be slower; or most boots of B fail.
    pub(super) failed: Vec<(String, String)>,
    /// Nothing can be shown, and what there is does not speak for B.
    pub(super) unknown: Vec<(String, String)>,
    /// Above the limit, but not shown, where that is asked for.
    pub(super) noise: Vec<(String, String)>,
}

enum Judgement {
    Held,
    Failed(String),
    Unknown(String),
    Noise(String),
}

impl Gate {
    /// Judges all `pairs` at once. Each could fail by chance, and more of them more often; so each gets its share of the
    /// chance that a whole comparison may have (Bonferroni), and the interval that belongs to that.
    pub(super) fn of(pairs: &[Pair<'_>], limit: Limit, if_shown: bool) -> Self {
        let mut gate = Self { limit, if_shown, failed: Vec::new(), unknown: Vec::new(), noise: Vec::new() };
        let judged = u32::try_from(pairs.iter().filter(|pair| pair.judged().is_some()).count()).unwrap_or(u32::MAX);
        let chance = CHANCE / f64::from(judged.max(1));
        for pair in pairs {
            let (list, why) = match gate.judge(pair, chance) {
                Judgement::Held => continue,
                Judgement::Failed(why) => (&mut gate.failed, why),
                Judgement::Unknown(why) => (&mut gate.unknown, why),
                Judgement::Noise(why) => (&mut gate.noise, why),
            };
            list.push((plain(&describe(pair.a.variant)), why));
        }
        gate
    }

    /// 0: the limit holds; 1: it does not; 2: nobody knows.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match (self.failed.is_empty(), self.unknown.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 0,
        }
    }

    fn judge(&self, pair: &Pair<'_>, chance: f64) -> Judgement {
        let Some(resampled) = &pair.resampled else {
            return match (pair.median_a, pair.b.failed) {
                (Some(_), 1..) => Judgement::Failed("no boot of B reached init".to_owned()),
                (Some(_), 0) => Judgement::Unknown("no samples in B".to_owned()),
                (None, _) => Judgement::Unknown("no samples in A".to_owned()),
            };
        };
        if let Some(why) = fails_to_boot(&pair.a, &pair.b) {
            return Judgement::Failed(why);
        }
        let (ratio, limit) = (resampled.ratio, self.limit.0);
        if ratio <= limit {
            return Judgement::Held;
        }
        if pair.judged().is_none() {
            let words = format!("{ratio:.3}, of {} samples", pair.n());
            return if self.if_shown {
                Judgement::Unknown(format!("{words}; at least {LEAST_SAMPLES} are needed"))
            } else {
                Judgement::Failed(format!("{words}: may be noise"))
            };
        }
        let interval = resampled.interval(chance);
        let words = format!("{ratio:.3} ({:.3} to {:.3})", interval.low, interval.high);
        match (is_shown(resampled, limit, chance), self.if_shown) {
            (true, _) => Judgement::Failed(words),
            (false, true) => Judgement::Noise(words),
            (false, false) => Judgement::Failed(format!("{words}: may be noise")),
        }
    }
}

/// Why `b` has failed whatever the times of its few good boots: half of its boots or more have failed, and a larger share of them than
/// of those of `a`.
fn fails_to_boot(a: &Group<'_>, b: &Group<'_>) -> Option<String> {
    let all = |group: &Group<'_>| group.failed + group.samples.len();
    let is_more = b.failed * all(a) > a.failed * all(b);
    (is_more && 2 * b.failed >= all(b)).then(|| format!("{} of {} boots of B failed", b.failed, all(b)))
}

/// Whether the ratio is above `limit`, and B slower for all but `chance`. A limit below 1 asks for a gain, which must then
/// be missed for all but `chance`.
fn is_shown(resampled: &Resampled, limit: f64, chance: f64) -> bool {
    resampled.ratio > limit && resampled.interval(chance).low > limit.min(1.0)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::super::pairs::matched;
    use super::*;
    use crate::report::fixture::{GIB, sweep, variant};
    use crate::results::End;

    #[test]
    fn limits_are_finite_and_above_0() {
        assert_eq!("1.05".parse(), Ok(Limit(1.05)));
        for wrong in ["0", "-0", "-1", "nan", "inf", "1e999", "", "5%", "1,05"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_few_good_boots_do_not_make_up_for_many_that_failed() {
        let with = |failed: [u32; 2]| {
            let [a, b] = failed.map(|failed| {
                let mut results = sweep(vec![variant("flatboot", "async", GIB)], 10, |_, _| 1_000_000);
                let boots = results.boots.iter_mut().filter(|boot| (1..=failed).contains(&boot.round));
                boots.for_each(|boot| boot.end = End::Failed { why: "no init".to_owned(), console: Vec::new() });
                results
            });
            Gate::of(&matched(&a, &b).pairs, Limit(1.05), false).failed
        };
        let failed = with([0, 5]);
        assert_eq!(failed[0].1, "5 of 10 boots of B failed");
        assert_eq!([[0, 4], [5, 5], [6, 5]].map(|failed| with(failed).len()), [0, 0, 0]);
        assert_eq!(with([5, 6])[0].1, "6 of 10 boots of B failed");
    }

    /// Ten values around 1 s, in ascending order, each up to 10 % away from it.
    fn noisy(rng: &mut Rng) -> Vec<u64> {
        let mut values: Vec<_> = (0..10).map(|_| rng.u64(900_000_000..1_100_000_000)).collect();
        values.sort_unstable();
        values
    }

    #[test]
    fn noise_alone_fails_few_comparisons() {
        const VARIANTS: usize = 20;
        let mut rng = Rng::with_seed(3);
        let comparisons: Vec<Vec<_>> = (0..60)
            .map(|_| {
                let pair = |_| Resampled::redrawn(&noisy(&mut rng), &noisy(&mut rng), 2000).unwrap();
                (0..VARIANTS).map(pair).collect()
            })
            .collect();
        let failed = |chance: f64| {
            comparisons.iter().filter(|pairs| pairs.iter().any(|pair| is_shown(pair, 1.05, chance))).count()
        };
        let (each, all) = (failed(CHANCE), failed(CHANCE / 20.0));
        // At most 1 in 20 of the comparisons, as the help says; judging each variant for itself would fail far more.
        assert!(all <= 3 && each >= 12, "of 60 comparisons: {all} for all variants at once, {each} for each by itself");
    }
}
