// SPDX-License-Identifier: Apache-2.0
//! The memory hand-off between VMM, firmware and guest kernel: one contract, defined once.
//!
//! Whoever starts a guest describes its RAM in a [table](wire): [`Region`]s, the units in which the kernel fills its
//! memmap in parallel, and [`Arena`]s, room that is set aside for the memmap itself. The kernel trusts none of it; the
//! [rules](TableError) are the same on both sides, and [`c_header`] writes them down for C.
//!
//! ```
//! use flatboot_handoff::{Region, RegionFlags, SECTION_SIZE, Table, encode, encoded_len};
//!
//! let regions = [Region { base: 1 << 32, length: 8 * SECTION_SIZE, node: 0, flags: RegionFlags::ZEROED }];
//! let mut bytes = [0; encoded_len(1, 0)];
//! encode(&regions, &[], &mut bytes)?;
//!
//! let table = Table::parse(&bytes)?;
//! assert!(table.regions().eq(regions));
//! # Ok::<(), flatboot_handoff::TableError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod c_header;
mod crc32c;
mod encode;
mod entry;
mod error;
mod limits;
pub mod marks;
mod parse;
mod rules;
pub mod wire;

pub use encode::{encode, encoded_len};
pub use entry::{Arena, Region, RegionFlags};
pub use error::{Entry, TableError};
pub use limits::{ADDRESS_END, ARENA_ALIGN, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, SECTION_SHIFT, SECTION_SIZE};
pub use parse::{Arenas, Regions, Table};

/// `type` of the boot protocol's `struct setup_data` node whose payload is a table: "PAMM" in memory order.
pub const SETUP_DATA_TYPE: u32 = 0x4d4d_4150;
/// Kernel parameter that gives the GPA of a table in hexadecimal: `memmap_handoff=0x30010`.
pub const KERNEL_PARAMETER: &str = "memmap_handoff";
/// GUID of the UEFI configuration table whose data is a table, in the fields of an `EFI_GUID` (UEFI specification,
/// section 4.6): 7117910f-e8ce-4928-b5d9-7dd88c38e031.
pub const EFI_TABLE_GUID: (u32, u16, u16, [u8; 8]) =
    (0x7117_910f, 0xe8ce, 0x4928, [0xb5, 0xd9, 0x7d, 0xd8, 0x8c, 0x38, 0xe0, 0x31]);
/// Name of the `fw_cfg` file in which firmware finds the VMM's plan: a table. QEMU keeps names below `opt/` for its users
/// (`docs/specs/fw_cfg.rst`).
pub const PLAN_FILE: &str = "opt/org.flatboot/plan";
/// Name of the `fw_cfg` file in which the kernel itself looks for a table, where [`KERNEL_PARAMETER`] says [`FW_CFG`].
///
/// Not the plan's: firmware takes that one, and hands over a table of its own.
pub const FW_CFG_FILE: &str = "opt/org.flatboot/memmap-handoff";
/// The value of [`KERNEL_PARAMETER`] that has the kernel look for [`FW_CFG_FILE`].
pub const FW_CFG: &str = "fw_cfg";
