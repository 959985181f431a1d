// SPDX-License-Identifier: Apache-2.0
//! What a table's entries are measured by, and how many there can be.

/// Bytes in a memory section on x86-64 (`SECTION_SIZE_BITS` in `arch/x86/include/asm/sparsemem.h`).
pub const SECTION_SIZE: u64 = 1 << SECTION_SHIFT;
/// Base-2 logarithm of [`SECTION_SIZE`].
pub const SECTION_SHIFT: u32 = 27;
/// Bytes in a page: the alignment of where a node's first and last region begin and end.
pub const PAGE_SIZE: u64 = 1 << 12;
/// Base and length of an arena are multiples of this: one huge page, which also is the memmap of one section.
pub const ARENA_ALIGN: u64 = 1 << 21;
/// No region ends above this: the widest physical address that x86-64 defines.
pub const ADDRESS_END: u64 = 1 << 52;
/// Most regions in a table.
pub const MAX_REGIONS: usize = 4096;
/// Most arenas in a table.
pub const MAX_ARENAS: usize = 4096;
