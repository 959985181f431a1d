// SPDX-License-Identifier: Apache-2.0
//! Order statistics of samples.

/// With fewer samples than this, p95 and spread say little.
pub const FEW_SAMPLES: usize = 10;

/// What a column of samples comes down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of samples.
    pub n: usize,
    /// Smallest.
    pub min: u64,
    /// 25th percentile.
    pub p25: u64,
    /// Median.
    pub median: u64,
    /// 75th percentile.
    pub p75: u64,
    /// 95th percentile.
    pub p95: u64,
    /// Largest.
    pub max: u64,
}

impl Summary {
    /// Of samples in ascending order; none of none.
    #[must_use]
    pub fn of(sorted: &[u64]) -> Option<Self> {
        Some(Self {
            n: sorted.len(),
            min: *sorted.first()?,
            p25: percentile(sorted, 25)?,
            median: median(sorted)?,
            p75: percentile(sorted, 75)?,
            p95: percentile(sorted, 95)?,
            max: *sorted.last()?,
        })
    }

    /// Half of the samples lie within so many per cent of the median: the interquartile range over the median.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio of values below 2^52")]
    pub fn spread_percent(&self) -> f64 {
        (self.p75 - self.p25) as f64 * 100.0 / self.median.max(1) as f64
    }
}

/// The middle value of ascending ones, or the mean of the two middle ones, rounded down.
#[must_use]
pub fn median(sorted: &[u64]) -> Option<u64> {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted.get(middle).copied(),
        _ => Some(u64::midpoint(*sorted.get(middle.checked_sub(1)?)?, *sorted.get(middle)?)),
    }
}

/// The smallest of ascending values that is not below `percent` of all of them (nearest rank).
#[must_use]
pub fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    sorted.get((sorted.len() * percent).div_ceil(100).checked_sub(1)?).copied()
}

/// The ratio of two values; none if the lower one is 0.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a ratio of values below 2^52")]
pub fn ratio(above: u64, below: u64) -> Option<f64> {
    (below > 0).then(|| above as f64 / below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Michelson's 100 measurements of the speed of light, in km/s above 299000: data set Michelso of NIST's Statistical
    /// Reference Datasets, `morley` of R.
    #[rustfmt::skip]
    const MICHELSON: [u64; 100] = [
        850, 740, 900, 1070, 930, 850, 950, 980, 980, 880, 1000, 980, 930, 650, 760, 810, 1000, 1000, 960, 960,
        960, 940, 960, 940, 880, 800, 850, 880, 900, 840, 830, 790, 810, 880, 880, 830, 800, 790, 760, 800,
        880, 880, 880, 860, 720, 720, 620, 860, 970, 950, 880, 910, 850, 870, 840, 840, 850, 840, 840, 840,
        890, 810, 810, 820, 800, 770, 760, 740, 750, 760, 910, 920, 890, 860, 880, 720, 840, 850, 850, 780,
        890, 840, 780, 810, 760, 810, 790, 810, 820, 850, 870, 870, 810, 740, 810, 940, 950, 800, 810, 870,
    ];

    #[test]
    fn a_data_set_with_published_statistics() {
        let mut sorted = MICHELSON;
        sorted.sort_unstable();
        // NIST certifies the mean, which says that these are the values. R's summary gives 807.5 and 892.5 for the quartiles,
        // a quarter of the way from one value to the next: the values themselves are 800 and 890.
        assert_eq!(sorted.iter().sum::<u64>(), 85240);
        let expected = Summary { n: 100, min: 620, p25: 800, median: 850, p75: 890, p95: 980, max: 1070 };
        assert_eq!(Summary::of(&sorted), Some(expected));
        assert!((expected.spread_percent() - 900.0 / 85.0).abs() < 1e-9);
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        // The worked examples of Wikipedia's article on percentiles.
        let five = [15, 20, 35, 40, 50];
        let of = |percents: &[usize], values: &[u64]| -> Vec<_> {
            percents.iter().map(|percent| percentile(values, *percent).unwrap()).collect()
        };
        assert_eq!(of(&[5, 30, 40, 50, 100], &five), [15, 20, 20, 35, 50]);
        assert_eq!(of(&[25, 50, 75, 100], &[3, 6, 7, 8, 8, 10, 13, 15, 16, 20]), [7, 8, 15, 20]);
        assert_eq!(of(&[25, 50, 75, 100], &[3, 6, 7, 8, 8, 9, 10, 13, 15, 16, 20]), [7, 9, 15, 20]);
    }

    #[test]
    fn few_values_and_large_ones() {
        assert_eq!((Summary::of(&[]), median(&[]), percentile(&[], 95)), (None, None, None));
        assert_eq!((median(&[7]), median(&[1, 2]), median(&[1, 3])), (Some(7), Some(1), Some(2)));
        let summary = Summary::of(&[u64::MAX - 2, u64::MAX]).unwrap();
        assert_eq!((summary.median, summary.p95), (u64::MAX - 1, u64::MAX));
        assert_eq!((ratio(3, 2), ratio(1, 0)), (Some(1.5), None));
    }
}
