// SPDX-License-Identifier: Apache-2.0
//! What samples say, and how sure that is. Nothing here assumes a distribution.

mod bootstrap;
mod order;
mod rounds;

pub use bootstrap::{CHANCE, Interval, LEAST_SAMPLES, RESAMPLES, Resampled};
pub use order::{FEW_SAMPLES, Summary, median, percentile, ratio};
pub use rounds::{interval_by_round, ratio_by_round};
