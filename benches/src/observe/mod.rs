// SPDX-License-Identifier: Apache-2.0
//! The observer: it runs beside the VMM, in the same host and on the same clock, and watches one boot from outside.
//!
//! It takes the time, executes the VMM, takes the time of every byte that comes from the mark port and of every line of the
//! console, and when init's first line comes it stops the VMM for a moment and asks the kernel how much memory it has.

mod api;
mod boot;
mod facts;
mod fleet;
mod marks;
mod memory;
mod order;
mod peer;
mod template;
mod vmm;

pub(crate) use api::LIMIT;
pub use boot::boots;
pub use facts::{Surroundings, surroundings};
pub(crate) use marks::now_ns;
pub use order::{Content, INIT_LINE, MarksFrom, Order, Resize, StagedFile, Template, Until};
pub use vmm::Interrupted;
pub(crate) use vmm::Vmm;
