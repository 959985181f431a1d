// SPDX-License-Identifier: Apache-2.0
//! The memory hand-off between VMM, firmware and guest kernel.
#![no_std]
#![forbid(unsafe_code)]

/// Bytes in a memory section on x86-64 (`SECTION_SIZE_BITS` 27 in `arch/x86/include/asm/sparsemem.h`).
pub const SECTION_SIZE: u64 = 1 << 27;
