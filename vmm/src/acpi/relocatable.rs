// SPDX-License-Identifier: Apache-2.0
//! All tables, not placed yet: their bytes, where the pointers between them are, and which checksums change with those.

use std::ops::Range;

use acpi_tables::Aml;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::xsdt::XSDT;

use super::machine::{Machine, OEM_ID, OEM_REVISION, OEM_TABLE_ID};
use super::{dsdt, fixed, processors};

/// Bytes of a pointer between tables: all of them have 64 bits.
pub(super) const POINTER: usize = 8;
/// Where tables begin, relative to the first.
pub(super) const ALIGN: usize = 16;

/// Offset of the checksum in every table but the RSDP (ACPI 6.5, table 5.4).
const CHECKSUM: usize = 9;
/// Offset of `X_DSDT` in the FADT (table 5.9).
const FADT_X_DSDT: usize = 140;
/// Offset of the first entry of the XSDT (table 5.8).
const XSDT_ENTRIES: usize = 36;
/// The RSDP (table 5.3): offsets of its pointer and of the checksum that covers it, and with it the whole.
const RSDP_XSDT: usize = 24;
const RSDP_EXTENDED_CHECKSUM: usize = 32;

/// Which of the two pieces a field is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// The RSDP alone.
    Rsdp,
    /// All tables.
    Tables,
}

/// A pointer, which holds how far into [`Piece::Tables`] it points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) piece: Piece,
    pub(super) offset: usize,
}

/// A checksum, which is 0: what makes the bytes `start..start + length` add up to 0 once all links are addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    pub(super) piece: Piece,
    pub(super) offset: usize,
    pub(super) start: usize,
    pub(super) length: usize,
}

/// All tables, relative to where they will be.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) rsdp: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) links: Vec<Link>,
    pub(super) sums: Vec<Sum>,
}

impl Tables {
    /// The tables of `machine`.
    pub(super) fn new(machine: &Machine<'_>) -> Self {
        let mut tables = Self { rsdp: Vec::new(), body: Vec::new(), links: Vec::new(), sums: Vec::new() };
        let dsdt = tables.add(&dsdt::build(machine), 0..0);
        let mut listed = vec![
            tables.add(&fixed::fadt(dsdt), FADT_X_DSDT..FADT_X_DSDT + POINTER),
            tables.add(&processors::madt(machine), 0..0),
            tables.add(&processors::srat(machine), 0..0),
        ];
        listed.extend(processors::slit(machine.nodes).map(|slit| tables.add(&slit, 0..0)));
        let mut xsdt = XSDT::new(OEM_ID, OEM_TABLE_ID, OEM_REVISION);
        for &table in &listed {
            xsdt.add_entry(table);
        }
        let xsdt = tables.add(&xsdt, XSDT_ENTRIES..XSDT_ENTRIES + listed.len() * POINTER);
        tables.set_rsdp(xsdt);
        tables
    }

    /// Puts `table` behind the others and returns how far in it is; `pointers` are the bytes of it that are links.
    fn add(&mut self, table: &dyn Aml, pointers: Range<usize>) -> u64 {
        let start = self.body.len().next_multiple_of(ALIGN);
        self.body.resize(start, 0);
        table.to_aml_bytes(&mut self.body);
        if !pointers.is_empty() {
            let piece = Piece::Tables;
            let at = pointers.step_by(POINTER).map(|offset| Link { piece, offset: start + offset });
            self.links.extend(at);
            let length = self.body.len() - start;
            self.sum(Sum { piece, offset: start + CHECKSUM, start, length });
        }
        start as u64
    }

    fn set_rsdp(&mut self, xsdt: u64) {
        Rsdp::new(OEM_ID, xsdt).to_aml_bytes(&mut self.rsdp);
        let piece = Piece::Rsdp;
        self.links.push(Link { piece, offset: RSDP_XSDT });
        // The other checksum, of what ACPI 1.0 knew, covers no pointer.
        self.sum(Sum { piece, offset: RSDP_EXTENDED_CHECKSUM, start: 0, length: self.rsdp.len() });
    }

    fn sum(&mut self, sum: Sum) {
        if let Some(byte) = self.piece(sum.piece).get_mut(sum.offset) {
            *byte = 0;
        }
        self.sums.push(sum);
    }

    fn piece(&mut self, piece: Piece) -> &mut Vec<u8> {
        match piece {
            Piece::Rsdp => &mut self.rsdp,
            Piece::Tables => &mut self.body,
        }
    }

    /// RSDP and tables for tables at GPA `base`, which is a multiple of [`ALIGN`].
    pub(super) fn at(mut self, base: u64) -> (Vec<u8>, Vec<u8>) {
        for Link { piece, offset } in std::mem::take(&mut self.links) {
            let field = self.piece(piece).get_mut(offset..).and_then(|rest| rest.first_chunk_mut::<POINTER>());
            if let Some(field) = field {
                *field = (u64::from_le_bytes(*field) + base).to_le_bytes();
            }
        }
        for Sum { piece, offset, start, length } in std::mem::take(&mut self.sums) {
            let covered = self.piece(piece).iter().skip(start).take(length);
            let sum = covered.fold(0u8, |sum, byte| sum.wrapping_add(*byte));
            if let Some(byte) = self.piece(piece).get_mut(offset) {
                *byte = sum.wrapping_neg();
            }
        }
        (self.rsdp, self.body)
    }
}
