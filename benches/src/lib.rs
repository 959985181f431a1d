// SPDX-License-Identifier: Apache-2.0
//! VM tests and boot-time measurements, on real KVM or on the emulated KVM host.
//!
//! A test or a measurement asks the [`Backend`], which runs a program directly where `/dev/kvm` can run ordinary
//! guests, and in the [emulated host](host) where it cannot, at the same paths and with the same exit code.
//!
//! ```no_run
//! use flatboot_bench::{Command, Backend, HostOptions};
//!
//! let backend = Backend::open(None)?;
//! let outcome = backend.run(&HostOptions::default(), &Command::new("/usr/bin/true"))?;
//! assert_eq!(outcome.code, 0);
//! # anyhow::Ok(())
//! ```

pub mod artifact;
pub mod backend;
pub mod clock_jumps;
pub mod command;
pub mod compare;
pub mod direct;
pub mod error;
pub mod guest;
pub mod host;
pub mod initramfs;
pub mod modes;
pub mod observe;
pub mod protocol;
pub mod report;
pub mod resize;
pub mod results;
pub mod scrub;
pub mod show;
pub mod slurm;
pub mod soak;
pub mod spec;
pub mod stats;
pub mod sweep;
pub mod terminal;
pub mod work;

mod ablation;
mod api_boot;
mod atomic_file;
mod fleets;
mod http;
mod init_times;
mod json_file;
mod once;
mod progress;
mod rates;
mod size;
mod table;

pub use backend::{Backend, Kvm, Session, SessionControl};
pub use command::{Command, Finish, Outcome, Stdin, Streams};
pub use error::Error;
pub use host::{HostOptions, HostSession};
