// SPDX-License-Identifier: Apache-2.0
//! A size of the guest's memory that somebody waits for.

use std::time::Instant;

use super::handle::Reply;

/// A request that the guest has not answered yet.
#[derive(Debug)]
pub(super) struct Awaited {
    /// Bytes of held memory that it is to own.
    pub(super) wanted: u64,
    /// Since when.
    pub(super) since: Instant,
    /// Who waits.
    pub(super) reply: Reply,
}
