// SPDX-License-Identifier: Apache-2.0
//! The emulated KVM host: QEMU emulates an AMD machine with SVM, a small Linux with KVM runs in it, and programs of this
//! machine run on that, with this machine's root (read-only, by 9p) as theirs.
//!
//! One [`HostSession`] is one fresh host. Measurements take a new one for every sample, because later guests in the same
//! host are slower; functional tests may run many commands in one.

mod console;
mod machine;
mod memory;
mod options;
mod qemu;
mod session;
mod terminal;

pub use machine::Killer;
pub use options::{HostOptions, memory_mib};
pub use session::{Control, HostSession, Launched};
pub use terminal::{NO_TERMINAL, terminal_size};
