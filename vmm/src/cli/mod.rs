// SPDX-License-Identifier: Apache-2.0
//! The command line: commands, their help, and the statuses that they end with.

mod args;
mod exit;
pub mod map;
mod outside;
mod process;
mod words;

pub use args::{CheckArgs, Cli, MapArgs, NoVm, NotACommand, RunArgs, Verb};
pub use exit::ExitStatus;
pub use outside::OutsideArgs;
pub use process::ProcessArgs;
pub use words::in_options;

pub use crate::stdio;
