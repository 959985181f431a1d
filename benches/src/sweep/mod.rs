// SPDX-License-Identifier: Apache-2.0
//! A sweep: every combination of sizes, modes and VMMs, booted round by round.

mod modes;

pub use modes::{MODES, Mode};
