// SPDX-License-Identifier: Apache-2.0
//! A VM that ends with its first instructions.
//!
//! An emulated host translates code when it first runs, and a host on which VMs are started all day has run all of the VMM before.

use std::path::Path;

use object::LittleEndian as Endian;
use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, ET_EXEC, EV_CURRENT, FileHeader64, Ident, PT_LOAD, ProgramHeader64,
};
use object::endian::{U16, U32, U64};
use object::pod::bytes_of;

use crate::guest::Guest;

/// `mov al, 0xfe; out 0x64, al; hlt`: the keyboard controller resets the machine.
const CODE: [u8; 5] = [0xb0, 0xfe, 0xe6, 0x64, 0xf4];
/// Sizes of the two headers before it, which the file says again (ELF-64 object file format, 1.5, sections 3 and 8).
const HEADER_SIZE: u16 = 64;
const SEGMENT_SIZE: u16 = 56;
/// GPA of its first byte.
const ENTRY: u64 = 0x0100_0000;
/// The same in the upper half of the addresses, which a Linux is linked to.
const ADDRESS: u64 = 0xffff_ffff_8000_0000 + ENTRY;

/// `guest` with `kernel`, whose content is that of [`kernel`], and without what would be measured.
pub(super) fn of(guest: &Guest, kernel: &Path) -> Guest {
    Guest { kernel: kernel.to_path_buf(), initramfs: None, timeline: None, ..guest.clone() }
}

/// An ELF program of one segment, which has [`CODE`].
pub(super) fn kernel() -> Vec<u8> {
    let (half, word, long) = (|n| U16::new(Endian, n), |n| U32::new(Endian, n), |n| U64::new(Endian, n));
    let header = FileHeader64::<Endian> {
        e_ident: Ident {
            magic: ELFMAG,
            class: ELFCLASS64,
            data: ELFDATA2LSB,
            version: EV_CURRENT,
            os_abi: 0,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: half(ET_EXEC),
        e_machine: half(EM_X86_64),
        e_version: word(EV_CURRENT.into()),
        e_entry: long(ENTRY),
        e_phoff: long(HEADER_SIZE.into()),
        e_shoff: long(0),
        e_flags: word(0),
        e_ehsize: half(HEADER_SIZE),
        e_phentsize: half(SEGMENT_SIZE),
        e_phnum: half(1),
        e_shentsize: half(0),
        e_shnum: half(0),
        e_shstrndx: half(0),
    };
    let segment = ProgramHeader64::<Endian> {
        p_type: word(PT_LOAD),
        p_flags: word(5),
        p_offset: long((HEADER_SIZE + SEGMENT_SIZE).into()),
        p_vaddr: long(ADDRESS),
        p_paddr: long(ENTRY),
        p_filesz: long(CODE.len() as u64),
        p_memsz: long(CODE.len() as u64),
        p_align: long(1),
    };
    [bytes_of(&header), bytes_of(&segment), &CODE].concat()
}
