// SPDX-License-Identifier: Apache-2.0
//! The specification: every promise of the project, how each is put to the test, and what came of it.
//!
//! docs/SPECIFICATION.md says what is promised, and [`PROMISES`] how that is proved; a test holds the two against each other.

mod bench;
mod bound;
mod cargo;
mod changes;
mod clocks;
pub mod footprint;
mod mode;
mod outcome;
mod promise;
mod promises;
mod rehearsal;
mod run;
mod samples;
mod script;
mod speed;
mod stop;
mod sweeps;

pub use bench::{Bench, Variant, Variants};
pub use bound::Bound;
pub use changes::Changes;
pub use outcome::{Outcome, Status};
pub use promise::{Promise, Proof, SECTIONS, rows};
pub use promises::PROMISES;
pub use run::{Misuse, Options, list, run};
pub use samples::{Sample, Samples};
pub use speed::{Claim, Source};
pub use sweeps::{Measure, SweepClaim};
