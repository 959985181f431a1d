// SPDX-License-Identifier: Apache-2.0
//! The contract in C, for the kernel series.
//!
//! `cargo run -p flatboot-handoff --example c-header -- guest-kernel/include` writes the headers again.

use core::fmt::{self, Display, Formatter, LowerHex};

use crate::marks::{self, Mark, Origin};
use crate::wire::{self, Field};
use crate::{
    ADDRESS_END, ARENA_ALIGN, ArenaFlags, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, RegionFlags, SECTION_SIZE,
    SETUP_DATA_TYPE,
};

/// A header file; its [`Display`] is the file's content.
#[derive(Debug, Clone, Copy)]
pub struct CHeader {
    /// Its file name.
    pub file_name: &'static str,
    title: &'static str,
    guard: &'static str,
    body: fn(&mut Formatter<'_>) -> fmt::Result,
}

/// Every header, by file name.
pub const ALL: [CHeader; 2] = [
    CHeader {
        file_name: "boot_marks_abi.h",
        title: "Boot mark codes: one byte written to an I/O port.",
        guard: "_LINUX_BOOT_MARKS_ABI_H",
        body: boot_marks,
    },
    CHeader {
        file_name: "memmap_handoff_abi.h",
        title: "The memmap hand-off table, little-endian.",
        guard: "_LINUX_MEMMAP_HANDOFF_ABI_H",
        body: memmap_handoff,
    },
];

impl Display for CHeader {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The headers become part of the kernel, under its licence.
        writeln!(f, "/* SPDX-License-Identifier: GPL-2.0-only */")?;
        writeln!(f, "/* {} Generated, do not edit. */", self.title)?;
        writeln!(f, "#ifndef {}\n#define {}\n", self.guard, self.guard)?;
        (self.body)(f)?;
        writeln!(f, "\n#endif /* {} */", self.guard)
    }
}

fn boot_marks(f: &mut Formatter<'_>) -> fmt::Result {
    define(f, "BOOT_MARK_", "PORT", Hex(marks::PORT))?;
    for (origin, comment) in [
        (Origin::Kernel, "Written by the kernel: 0x40 to 0x5f."),
        (Origin::UserSpace, "Written by user space: 0x60 to 0x7f."),
    ] {
        writeln!(f, "\n/* {comment} */")?;
        for Mark { code, constant, .. } in marks::ALL.iter().filter(|mark| Origin::of(mark.code) == origin) {
            define(f, "BOOT_MARK_", constant, Hex(*code))?;
        }
    }
    Ok(())
}

fn memmap_handoff(f: &mut Formatter<'_>) -> fmt::Result {
    const PREFIX: &str = "MEMMAP_HANDOFF_";

    writeln!(f, "#include <linux/types.h>\n")?;
    writeln!(f, "/* The setup_data node type that carries a table. */")?;
    define(f, "SETUP_", "MEMMAP_HANDOFF", Hex(SETUP_DATA_TYPE))?;

    writeln!(f, "\n/* The bytes \"FLATBOOT\". */")?;
    define(f, PREFIX, "MAGIC", Address(wire::MAGIC))?;
    define(f, PREFIX, "VERSION", wire::VERSION)?;
    define(f, PREFIX, "MAX_REGIONS", MAX_REGIONS)?;
    define(f, PREFIX, "MAX_ARENAS", MAX_ARENAS)?;

    writeln!(f, "\n/* Alignment of region bounds (unless RAGGED) and of arena bounds, in bytes. */")?;
    define(f, PREFIX, "SECTION_SIZE", Address(SECTION_SIZE))?;
    define(f, PREFIX, "ARENA_ALIGN", Address(ARENA_ALIGN))?;
    define(f, PREFIX, "PAGE_SIZE", Address(PAGE_SIZE))?;
    writeln!(f, "/* No region ends above this physical address. */")?;
    define(f, PREFIX, "MAX_ADDRESS", Address(ADDRESS_END))?;

    writeln!(f, "\n/* Region flags. */")?;
    for (name, flag) in RegionFlags::all().iter_names() {
        define(f, "MEMMAP_HANDOFF_REGION_", name, Hex(flag.bits()))?;
    }
    define(f, PREFIX, "REGION_FLAGS", Hex(RegionFlags::all().bits()))?;
    writeln!(f, "\n/* Arena flags. */")?;
    for (name, flag) in ArenaFlags::all().iter_names() {
        define(f, "MEMMAP_HANDOFF_ARENA_", name, Hex(flag.bits()))?;
    }
    define(f, PREFIX, "ARENA_FLAGS", Hex(ArenaFlags::all().bits()))?;

    structure(f, "header", &wire::HEADER)?;
    structure(f, "region", &wire::REGION)?;
    structure(f, "arena", &wire::ARENA)?;
    writeln!(f)?;
    define(f, PREFIX, "HEADER_SIZE", wire::HEADER_LEN)?;
    define(f, PREFIX, "REGION_SIZE", wire::REGION_LEN)?;
    define(f, PREFIX, "ARENA_SIZE", wire::ARENA_LEN)
}

/// One macro, its value at column 40 as far as tabs of 8 take it.
fn define(f: &mut Formatter<'_>, prefix: &str, name: &str, value: impl Display) -> fmt::Result {
    const VALUE_COLUMN: usize = 40;

    let width = "#define ".len() + prefix.len() + name.len();
    write!(f, "#define {prefix}{name}\t")?;
    for _ in width / 8 + 1..VALUE_COLUMN / 8 {
        write!(f, "\t")?;
    }
    writeln!(f, "{value}")
}

fn structure(f: &mut Formatter<'_>, name: &str, fields: &[Field]) -> fmt::Result {
    writeln!(f, "\nstruct memmap_handoff_{name} {{")?;
    for field in fields {
        writeln!(f, "\t__le{} {};", field.size * 8, field.name)?;
    }
    writeln!(f, "}};")
}

/// A number that fits an int.
struct Hex<T>(T);

impl<T: LowerHex> Display for Hex<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address or a size, 64 bits wide in arithmetic.
struct Address(u64);

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}ULL", self.0)
    }
}
