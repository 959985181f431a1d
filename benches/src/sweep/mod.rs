// SPDX-License-Identifier: Apache-2.0
//! A sweep: every combination of sizes, modes and VMMs, booted round by round.

mod engine;
mod matrix;
mod setup;
mod stop;
mod switches;
mod vmm;

pub(crate) use engine::resumed;
pub use engine::{Finished, Request, prepare, run};
pub use matrix::{Cpus, Matrix, Memory, Resize, Shape, Starts, Threads, Vms, describe};
pub use stop::Stop;
pub use switches::{FULL_SET, Place, SWITCHES, Switch, Without};
pub use vmm::{Choice, Guest, Kind, Vmm};
pub(crate) use vmm::{Q35, escaped};
