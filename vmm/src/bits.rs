// SPDX-License-Identifier: Apache-2.0
//! Narrowing by name: each function says what happens to the bits that do not fit.

const _: () = assert!(usize::BITS == 64, "flatboot runs on 64-bit hosts");

/// The low 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]
pub const fn low32(value: u64) -> u32 {
    value as u32
}

/// The low 16 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]
pub const fn low16(value: u64) -> u16 {
    value as u16
}

/// The low 8 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "cutting is what it is for")]
pub const fn low8(value: u64) -> u8 {
    value as u8
}

/// The same number; hosts have 64 bits (checked above).
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "checked above")]
pub const fn index(value: u64) -> usize {
    value as usize
}
