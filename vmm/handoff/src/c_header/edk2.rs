// SPDX-License-Identifier: Apache-2.0
//! The firmware package's headers: EDK2 style, under EDK2's licence.

use core::fmt::{self, Display, Formatter};

use bitflags::{Flag, Flags};

use super::number::{Address, Hex};
use crate::marks::{self, Origin};
use crate::wire::{self, Field};
use crate::{
    ADDRESS_END, ARENA_ALIGN, EFI_TABLE_GUID, MAX_ARENAS, MAX_REGIONS, PAGE_SIZE, PLAN_FILE, RegionFlags, SECTION_SIZE,
};

/// What begins the name of the table's macros and types.
const PREFIX: &str = "FLATBOOT_HANDOFF_";

pub(super) fn marks(f: &mut Formatter<'_>) -> fmt::Result {
    const GUARD: &str = "FLATBOOT_MARKS_H_";
    const PREFIX: &str = "FLATBOOT_MARK_";

    begin(f, GUARD, "Boot mark codes: one byte written to an I/O port.")?;
    comment(f, "The I/O port.")?;
    define(f, PREFIX, &[("PORT", &Hex(marks::PORT))])?;
    for mark in marks::ALL.iter().filter(|mark| Origin::of(mark.code) == Origin::Firmware) {
        comment(f, mark.meaning)?;
        define(f, PREFIX, &[(mark.constant, &format_args!("{:#04x}", mark.code))])?;
    }
    end(f, GUARD)
}

pub(super) fn hand_off(f: &mut Formatter<'_>) -> fmt::Result {
    const GUARD: &str = "FLATBOOT_HAND_OFF_GUID_H_";

    begin(f, GUARD, "The memory hand-off table, little-endian: header, regions, arenas, without padding.")?;
    comment(f, "The EFI configuration table that holds the hand-off (UEFI specification, section 4.6).")?;
    writeln!(f, "#define {PREFIX}GUID \\\n  {Guid}\n")?;
    comment(f, "Name of the fw_cfg file that holds the VMM's plan.")?;
    define(f, "FLATBOOT_", &[("PLAN_FW_CFG_FILE", &format_args!("\"{PLAN_FILE}\""))])?;
    comment(f, "The bytes \"FLATBOOT\", and the version of the table.")?;
    let magic = Address(wire::MAGIC);
    define(f, PREFIX, &[("MAGIC", &magic), ("VERSION", &wire::VERSION)])?;
    comment(f, "The most entries of a table.")?;
    define(f, PREFIX, &[("MAX_REGIONS", &MAX_REGIONS), ("MAX_ARENAS", &MAX_ARENAS)])?;
    comment(
        f,
        "Alignment of region bounds, of arena bounds, and of where a node's first and last region begin and end, in bytes.",
    )?;
    let (section, arena, page) = (Address(SECTION_SIZE), Address(ARENA_ALIGN), Address(PAGE_SIZE));
    define(f, PREFIX, &[("SECTION_SIZE", &section), ("ARENA_ALIGN", &arena), ("PAGE_SIZE", &page)])?;
    comment(f, "No region ends above this physical address.")?;
    define(f, PREFIX, &[("MAX_ADDRESS", &Address(ADDRESS_END))])?;

    comment(f, "Region flags.")?;
    flags::<RegionFlags>(f, "REGION")?;

    structure(f, "HEADER", &wire::HEADER)?;
    structure(f, "REGION", &wire::REGION)?;
    structure(f, "ARENA", &wire::ARENA)?;
    comment(f, "Sizes of the structures, in bytes.")?;
    let (header, region, arena) = (wire::HEADER_LEN, wire::REGION_LEN, wire::ARENA_LEN);
    define(f, PREFIX, &[("HEADER_SIZE", &header), ("REGION_SIZE", &region), ("ARENA_SIZE", &arena)])?;
    for name in ["HEADER", "REGION", "ARENA"] {
        let condition = format_args!("sizeof ({PREFIX}{name}) == {PREFIX}{name}_SIZE");
        writeln!(f, "STATIC_ASSERT ({condition}, \"{PREFIX}{name} has padding\");")?;
    }
    writeln!(f, "\nextern EFI_GUID  gFlatbootHandOffGuid;\n")?;
    end(f, GUARD)
}

fn begin(f: &mut Formatter<'_>, guard: &str, title: &str) -> fmt::Result {
    writeln!(f, "/** @file\n  {title}\n")?;
    writeln!(f, "  Generated from vmm/handoff, do not edit.\n")?;
    writeln!(f, "  SPDX-License-Identifier: BSD-2-Clause-Patent\n**/\n")?;
    writeln!(f, "#ifndef {guard}\n#define {guard}\n")
}

fn end(f: &mut Formatter<'_>, guard: &str) -> fmt::Result {
    writeln!(f, "#endif // {guard}")
}

fn comment(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(f, "///\n/// {text}{}\n///", if text.ends_with('.') { "" } else { "." })
}

/// Macros that belong together, their values in one column, and an empty line.
fn define(f: &mut Formatter<'_>, prefix: &str, macros: &[(&str, &dyn Display)]) -> fmt::Result {
    let width = macros.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in macros {
        writeln!(f, "#define {prefix}{name:<width$}  {value}")?;
    }
    writeln!(f)
}

/// The flags of one kind of entry, and all of them together.
fn flags<F: Flags<Bits = u32>>(f: &mut Formatter<'_>, entry: &str) -> fmt::Result {
    let names = F::FLAGS.iter().map(Flag::name).chain(["FLAGS"]);
    let width = names.map(str::len).max().unwrap_or_default();
    for flag in F::FLAGS {
        writeln!(f, "#define {PREFIX}{entry}_{:<width$}  {:#x}", flag.name(), flag.value().bits())?;
    }
    writeln!(f, "#define {PREFIX}{entry}_{:<width$}  {:#x}\n", "FLAGS", F::all().bits())
}

fn structure(f: &mut Formatter<'_>, name: &str, fields: &[Field]) -> fmt::Result {
    writeln!(f, "typedef struct {{")?;
    for field in fields {
        writeln!(f, "  ///\n  /// {}.\n  ///", Capitalized(field.meaning))?;
        writeln!(f, "  UINT{}    {};", field.size * 8, CamelCase(field.name))?;
    }
    writeln!(f, "}} {PREFIX}{name};\n")
}

/// A name whose words are joined by `_`, in EDK2's spelling.
struct CamelCase(&'static str);

impl Display for CamelCase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.split('_').try_for_each(|word| write!(f, "{}", Capitalized(word)))
    }
}

/// The same text with a capital at its start.
struct Capitalized<'a>(&'a str);

impl Display for Capitalized<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut letters = self.0.chars();
        if let Some(first) = letters.next() {
            write!(f, "{}", first.to_ascii_uppercase())?;
        }
        f.write_str(letters.as_str())
    }
}

/// The initialiser of the table's `EFI_GUID`.
pub struct Guid;

impl Display for Guid {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (first, second, third, rest) = EFI_TABLE_GUID;
        write!(f, "{{ {first:#010x}, {second:#06x}, {third:#06x}, {{ ")?;
        for (index, byte) in rest.iter().enumerate() {
            write!(f, "{}{byte:#04x}", if index == 0 { "" } else { ", " })?;
        }
        write!(f, " }} }}")
    }
}
