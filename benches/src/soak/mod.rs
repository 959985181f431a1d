// SPDX-License-Identifier: Apache-2.0
//! A soak: boots of random VMs that end in random ways, hosts side by side, until time is up.
//!
//! A seed decides one boot entirely ([`Plan`]), so a line with the seed is all that it takes to see a failure again.
//! A plan becomes an [`Order`] for the attendant ([`attend`]), which runs beside the VMM in the same host, does what the
//! plan says and tells what it has seen ([`Seen`]); what of that is wrong, [`judge`] says.

mod attend;
mod dice;
mod display;
mod draw;
mod end;
mod engine;
mod judge;
mod leftovers;
mod log;
mod order;
mod plan;
mod splat;
mod step;
mod tally;

pub use attend::attend;
pub use end::End;
pub use engine::{Request, run};
pub use judge::judge;
pub use order::{Order, Seen};
pub use plan::{Api, Disk, Plan, Rest, Serial};
pub use step::Step;
pub use tally::Tally;
