// SPDX-License-Identifier: Apache-2.0
//! What concerns this process, whatever VMs it has.

use std::path::PathBuf;

use clap::Args;

use crate::sandbox::Seccomp;

/// The options for the process itself.
#[derive(Debug, Clone, Args)]
pub struct ProcessArgs {
    /// What happens when a thread of flatboot makes a system call that its kind never needs: end the VM, with a line that names
    /// thread and call (true); let it (false); let it and have the host's kernel log it (log)
    #[arg(long, value_name = "true|false|log", value_enum, default_value = "true", hide_possible_values = true)]
    pub seccomp: Seccomp,

    /// Append the log to FILE, not to standard error
    ///
    /// A line each, with time, level and thread. What ends flatboot is said on standard error as ever.
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Log more than warnings: -v for information, -vv to debug, -vvv to trace
    #[arg(short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}
