// SPDX-License-Identifier: Apache-2.0
//! What the programs of hostile guests are made of, which the fuzz targets and property tests run.

/// Bytes as numbers, until they run out.
pub(super) struct Program<'a>(pub(super) &'a [u8]);

impl Program<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    pub(super) fn half(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
}
