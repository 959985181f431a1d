// SPDX-License-Identifier: Apache-2.0
//! What concerns this process, whatever VMs it has.

use std::path::PathBuf;

use clap::Args;

use crate::sandbox::Seccomp;

/// The options for the process itself.
#[derive(Debug, Clone, Args)]
pub struct ProcessArgs {
    /// Seccomp filters: if a thread of flatboot makes a system call that it never needs, end the VM, with a line that names
    /// thread and call (true), only log the call in the host's kernel log (log), or use no filters (false)
    #[arg(long, value_name = "true|false|log", value_enum, default_value = "true", hide_possible_values = true)]
    pub seccomp: Seccomp,

    /// Append the log to FILE, not to standard error
    ///
    /// Each line has time, level and thread. Fatal errors still go to standard error.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Log more than warnings: -v for info, -vv for debug, -vvv for trace
    #[arg(short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}
