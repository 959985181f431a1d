// SPDX-License-Identifier: Apache-2.0
//! What can be done to a VM while it runs.

use serde::{Deserialize, Serialize};

/// Something that the attendant does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Waits until init has done its checks so many times.
    Inits(usize),
    /// Waits so many milliseconds.
    Sleep(u64),
    /// Sends a signal.
    Signal(i32),
    /// Makes this request, which must be granted.
    Put(String),
    /// Pauses the VM for so many milliseconds, unless it is over by then.
    Rest(u64),
}
