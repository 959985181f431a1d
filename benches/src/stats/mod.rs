// SPDX-License-Identifier: Apache-2.0
//! What samples say, and how sure that is. Nothing here assumes a distribution.

mod bootstrap;
mod order;

pub use bootstrap::{Interval, RESAMPLES, Resampled};
pub use order::{Summary, median, percentile, ratio, ratio_by_round};
