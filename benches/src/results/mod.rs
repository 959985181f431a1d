// SPDX-License-Identifier: Apache-2.0
//! The results of a sweep, as they lie in `results.json`: what was asked for, where it ran, and every boot.
//!
//! Times are integer nanoseconds since just before the VMM's exec, on the clock of the host that it ran in; sizes are bytes.
//! Nothing is averaged here: a file holds raw samples, [`crate::stats`] reads numbers off them.

mod alike;
mod blocks;
mod check;
mod file;
mod format;
mod groups;
mod output;
mod words;

pub(crate) use blocks::is_shapes;
pub use blocks::{Block, blocks};
pub(crate) use file::MOST_BOOTS;
pub use file::{load, save};
pub use format::{
    Boot, End, FORMAT, Facts, GuestFacts, HostFacts, HostPages, Mark, Results, Sample, Start, Sweep, VERSION, Variant,
};
pub use groups::{Group, groups};
pub(crate) use output::Output;
pub(crate) use words::short;
