// SPDX-License-Identifier: Apache-2.0
//! The unit of the protocol.

/// Bytes in a sector.
pub const SECTOR_SIZE: u64 = 512;
