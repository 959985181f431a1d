// SPDX-License-Identifier: Apache-2.0
//! Order statistics of samples: nothing here assumes a distribution.

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
