// SPDX-License-Identifier: Apache-2.0
//! Why a program did not run to its end on its host.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::command::{EXIT_HOST, EXIT_TIMEOUT};

/// A program could not be run, or did not end by itself. What callers tell apart has a variant of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// QEMU ended, by itself or killed, before the program did.
    #[error("the emulated host ended before the program did: {0}")]
    Ended(ConsoleEnd),
    /// The init of the emulated host did not answer in time.
    #[error("the emulated host did not start within {} s: {end}", limit.as_secs())]
    StartTimeout {
        /// The limit.
        limit: Duration,
        /// What its console says.
        end: ConsoleEnd,
    },
    /// The program did not end in time.
    #[error("time ran out: the program still ran after {} s; it was ended", .0.as_secs_f32())]
    Timeout(Duration),
    /// A caller ended the emulated host.
    #[error("the emulated host was ended by signal {0}")]
    Killed(i32),
    /// Anything else.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Error {
    /// Exit code that tells a host's failures from the program's: 124 time ran out, 128 + n ended by signal n, else 125.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Timeout(_) => EXIT_TIMEOUT,
            Self::Killed(signal) => u8::try_from(128 + signal).unwrap_or(EXIT_HOST),
            _ => EXIT_HOST,
        }
    }
}

/// What the console of a failed host says: a reason in one line, then where the whole log is and its last lines.
#[derive(Debug)]
pub struct ConsoleEnd {
    /// In a few words, why.
    pub reason: String,
    /// The whole log, if it could be kept.
    pub log: Option<PathBuf>,
    /// Its last lines.
    pub last_lines: Vec<String>,
}

impl fmt::Display for ConsoleEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
