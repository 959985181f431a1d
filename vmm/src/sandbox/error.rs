// SPDX-License-Identifier: Apache-2.0
//! Why a jail cannot be had.

use std::io;

use landlock::RulesetError;

use super::Kind;
use crate::field::Field;

const LANDLOCK: Field = Field::section("landlock_enable");

/// Why a jail cannot be had, or not be entered.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A list makes no filter: a fault in it.
    #[error("--seccomp: the list of {kind} threads makes no filter")]
    List {
        /// Whose list.
        kind: Kind,
        /// Why.
        source: seccompiler::BackendError,
    },
    /// The host's kernel refuses the filter.
    #[error(
        "--seccomp true: this host does not support filters: must have CONFIG_SECCOMP_FILTER, or be used with --seccomp false"
    )]
    Filter(#[source] seccompiler::Error),
    /// The signal that a filter sends cannot be handled.
    #[error("--seccomp true: the signal of a filter cannot be handled")]
    Signal(#[source] io::Error),
    /// The host's kernel has no Landlock, or refuses the rules.
    #[error(
        "{LANDLOCK}: this host does not support Landlock: must have CONFIG_SECURITY_LANDLOCK, and landlock among its security modules \
         (lsm=)"
    )]
    Landlock(#[from] RulesetError),
    /// The rules of a thread cannot be had a second time.
    #[error("{LANDLOCK}: no file descriptor is left")]
    Rules(#[source] io::Error),
    /// A thread is gone.
    #[error("jail: a thread ended without a message")]
    Lost,
    /// The process cannot give up a right.
    #[error("jail: {what} cannot be set")]
    Harden {
        /// Which.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}
