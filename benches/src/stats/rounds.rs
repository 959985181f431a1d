// SPDX-License-Identifier: Apache-2.0
//! Two variants that were run in the same rounds.

use super::{CHANCE, Interval, ratio};

/// The median of the ratios within each round, of values in the order of the rounds; none unless both have as many.
///
/// What slows a machine for a while slows the boots of a round alike, so their ratio says more than that of two medians, which
/// may come from rounds that are far apart.
#[must_use]
pub fn ratio_by_round(above: &[u64], below: &[u64]) -> Option<f64> {
    let ratios = ratios_by_round(above, below)?;
    let upper = *ratios.get(ratios.len() / 2)?;
    let lower = *ratios.get((ratios.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Where that median lies for all but [`CHANCE`], by the sign test (Conover, Practical Nonparametric Statistics, section 3.2):
/// between two of the ratios; none if there are too few to show anything.
#[must_use]
pub fn interval_by_round(above: &[u64], below: &[u64]) -> Option<Interval> {
    let ratios = ratios_by_round(above, below)?;
    let beyond = beyond(ratios.len())?;
    Some(Interval { low: *ratios.get(beyond)?, high: *ratios.get(ratios.len() - 1 - beyond)? })
}

fn ratios_by_round(above: &[u64], below: &[u64]) -> Option<Vec<f64>> {
    if above.len() != below.len() {
        return None;
    }
    let mut ratios = above.iter().zip(below).map(|(above, below)| ratio(*above, *below)).collect::<Option<Vec<_>>>()?;
    ratios.sort_unstable_by(f64::total_cmp);
    Some(ratios)
}

/// How many of `n` values can be left out at each end, so that the rest has the median between its ends but for [`CHANCE`]: a
/// value is above it or below, as a coin falls.
#[expect(clippy::cast_precision_loss, reason = "a number of rounds")]
fn beyond(n: usize) -> Option<usize> {
    let mut exactly = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut at_most = exactly;
    let mut left_out = None;
    for k in 0..n {
        if 2.0 * at_most > CHANCE {
            break;
        }
        left_out = Some(k);
        exactly *= (n - k) as f64 / (k + 1) as f64;
        at_most += exactly;
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::median;

    #[test]
    fn the_median_lies_between_ranks_that_tables_give() {
        // Conover, table A3: ranks of a 95 % interval of the median, counted from 1.
        let expected = [(5, None), (6, Some(0)), (9, Some(1)), (10, Some(1)), (20, Some(5)), (30, Some(9))];
        assert_eq!(expected.map(|(n, _)| (n, beyond(n))), expected);
        let (above, below) = ((1..=10).collect::<Vec<_>>(), [1; 10]);
        assert_eq!(interval_by_round(&above, &below), Some(Interval { low: 2.0, high: 9.0 }));
        assert_eq!(interval_by_round(&above[..5], &below[..5]), None);
    }

    #[test]
    fn rounds_are_compared_each_with_itself() {
        // The machine becomes ten times slower between the boots of the third of five rounds.
        let (below, above) = ([10, 10, 10, 100, 100], [11, 11, 110, 110, 110]);
        assert_eq!(ratio_by_round(&above, &below), Some(1.1));
        assert_eq!(ratio(median(&above).unwrap(), median(&below).unwrap()), Some(11.0));
        assert_eq!(ratio_by_round(&[1, 2, 9, 4], &[1, 1, 1, 1]), Some(3.0));
        assert_eq!(
            (ratio_by_round(&[1], &[1, 1]), ratio_by_round(&[], &[]), ratio_by_round(&[1], &[0])),
            (None, None, None)
        );
    }
}
