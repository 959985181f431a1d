// SPDX-License-Identifier: Apache-2.0
//! The tables as three `fw_cfg` files: tables, RSDP, and the script by which firmware puts them into memory of its choice.
//!
//! A script is 128-byte commands: fetch a file, turn offsets into pointers, set a checksum (QEMU,
//! `hw/acpi/bios-linker-loader.c`; EDK2, `OvmfPkg/Include/IndustryStandard/QemuLoader.h`).

use super::machine::Machine;
use super::relocatable::{ALIGN, Link, POINTER, Piece, Sum, Tables};
use crate::bits::low32;

/// The file of the RSDP.
pub const RSDP_FILE: &str = "etc/acpi/rsdp";
/// The file of the tables.
pub const TABLES_FILE: &str = "etc/acpi/tables";
/// The file of the script.
pub const SCRIPT_FILE: &str = "etc/table-loader";

/// Bytes of a command.
const COMMAND: usize = 128;
/// Bytes of a file's name in a command, with at least one zero at the end.
const NAME: usize = 56;

const ALLOCATE: u32 = 1;
const ADD_POINTER: u32 = 2;
const ADD_CHECKSUM: u32 = 3;

/// Anywhere in memory; in the segment of 64 KiB below 1 MiB, where what has no other way looks for the RSDP.
const ZONE_HIGH: u8 = 1;
const ZONE_FSEG: u8 = 2;

/// What firmware needs to have the tables.
#[derive(Debug)]
pub struct Files {
    /// Content of [`RSDP_FILE`].
    pub rsdp: Vec<u8>,
    /// Content of [`TABLES_FILE`].
    pub tables: Vec<u8>,
    /// Content of [`SCRIPT_FILE`].
    pub script: Vec<u8>,
}

/// The tables of `machine`, for firmware.
#[must_use]
pub fn files(machine: &Machine<'_>) -> Files {
    let tables = Tables::new(machine);
    let mut script = Vec::new();
    command(&mut script, ALLOCATE, &allocate(Piece::Tables, ZONE_HIGH));
    command(&mut script, ALLOCATE, &allocate(Piece::Rsdp, ZONE_FSEG));
    for link in &tables.links {
        command(&mut script, ADD_POINTER, &add_pointer(*link));
    }
    for sum in &tables.sums {
        command(&mut script, ADD_CHECKSUM, &add_checksum(*sum));
    }
    Files { rsdp: tables.rsdp, tables: tables.body, script }
}

fn command(script: &mut Vec<u8>, kind: u32, operands: &[u8]) {
    let end = script.len() + COMMAND;
    script.extend(kind.to_le_bytes());
    script.extend(operands);
    script.resize(end, 0);
}

/// File, alignment, zone.
fn allocate(piece: Piece, zone: u8) -> Vec<u8> {
    [&name(piece)[..], &number(ALIGN), &[zone]].concat()
}

/// File of the pointer, file that it points into, its offset, its size.
fn add_pointer(link: Link) -> Vec<u8> {
    [&name(link.piece)[..], &name(Piece::Tables), &number(link.offset), &POINTER.to_le_bytes()[..1]].concat()
}

/// File, offset of the checksum, what it covers.
fn add_checksum(sum: Sum) -> Vec<u8> {
    [&name(sum.piece)[..], &number(sum.offset), &number(sum.start), &number(sum.length)].concat()
}

fn name(piece: Piece) -> [u8; NAME] {
    let mut field = [0; NAME];
    let name = match piece {
        Piece::Rsdp => RSDP_FILE,
        Piece::Tables => TABLES_FILE,
    };
    field.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    field
}

const _: () = assert!(RSDP_FILE.len() < NAME && TABLES_FILE.len() < NAME);

fn number(value: usize) -> [u8; 4] {
    low32(value as u64).to_le_bytes()
}

#[cfg(test)]
mod tests;
