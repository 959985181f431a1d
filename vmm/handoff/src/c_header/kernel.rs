// SPDX-License-Identifier: Apache-2.0
//! The kernel series' headers: Linux style, under the kernel's licence.

use core::fmt::{self, Display, Formatter};

use super::number::{Address, Hex};
use crate::marks::{self, Mark, Origin};
use crate::wire::{self, Field};
use crate::{
    ADDRESS_END, ARENA_ALIGN, EFI_TABLE_GUID, FW_CFG_FILE, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, RegionFlags,
    SECTION_SIZE, SETUP_DATA_TYPE,
};

pub(super) fn boot_marks(f: &mut Formatter<'_>) -> fmt::Result {
    const GUARD: &str = "_LINUX_BOOT_MARKS_ABI_H";

    begin(f, "GPL-2.0-only", GUARD, "Boot mark codes: one byte written to an I/O port.")?;
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
    end(f, GUARD)
}

pub(super) fn memmap_handoff(f: &mut Formatter<'_>) -> fmt::Result {
    const GUARD: &str = "_UAPI_LINUX_MEMMAP_HANDOFF_H";
    const PREFIX: &str = "MEMMAP_HANDOFF_";

    begin(f, "GPL-2.0-only WITH Linux-syscall-note", GUARD, "The memmap hand-off table, little-endian.")?;
    writeln!(f, "#include <linux/types.h>\n")?;
    writeln!(f, "/* The setup_data node type that carries a table. */")?;
    define(f, "SETUP_", "MEMMAP_HANDOFF", Hex(SETUP_DATA_TYPE))?;
    writeln!(f, "/* The EFI configuration table that is a table. */")?;
    define(f, PREFIX, "EFI_GUID", format_args!("\\\n\t{EfiGuid}"))?;
    writeln!(f, "/* The file of QEMU's fw_cfg that is a table. */")?;
    define(f, PREFIX, "FW_CFG_FILE", format_args!("\"{FW_CFG_FILE}\""))?;

    writeln!(f, "\n/* The bytes \"FLATBOOT\". */")?;
    define(f, PREFIX, "MAGIC", Address(wire::MAGIC))?;
    define(f, PREFIX, "VERSION", wire::VERSION)?;
    define(f, PREFIX, "MAX_REGIONS", MAX_REGIONS)?;
    define(f, PREFIX, "MAX_ARENAS", MAX_ARENAS)?;

    writeln!(f, "\n/*\n * Alignment of region bounds, of arena bounds, and of where a node's first and")?;
    writeln!(f, " * last region begin and end, in bytes.\n */")?;
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

    structure(f, "header", &wire::HEADER)?;
    structure(f, "region", &wire::REGION)?;
    structure(f, "arena", &wire::ARENA)?;
    writeln!(f)?;
    define(f, PREFIX, "HEADER_SIZE", wire::HEADER_LEN)?;
    define(f, PREFIX, "REGION_SIZE", wire::REGION_LEN)?;
    define(f, PREFIX, "ARENA_SIZE", wire::ARENA_LEN)?;
    end(f, GUARD)
}

fn begin(f: &mut Formatter<'_>, licence: &str, guard: &str, title: &str) -> fmt::Result {
    writeln!(f, "/* SPDX-License-Identifier: {licence} */")?;
    writeln!(f, "/* {title} Generated, do not edit. */")?;
    writeln!(f, "#ifndef {guard}\n#define {guard}\n")
}

fn end(f: &mut Formatter<'_>, guard: &str) -> fmt::Result {
    writeln!(f, "\n#endif /* {guard} */")
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

/// The kernel's macro for the table's GUID.
struct EfiGuid;

impl Display for EfiGuid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (first, second, third, rest) = EFI_TABLE_GUID;
        write!(f, "EFI_GUID({first:#010x}, {second:#06x}, {third:#06x}")?;
        for byte in rest {
            write!(f, ", {byte:#04x}")?;
        }
        f.write_str(")")
    }
}
