// SPDX-License-Identifier: Apache-2.0
//! ELF `vmlinux`: headers and segments, checked against the file and against what Linux looks like.

use linux_loader::elf::{ELFCLASS64, ELFDATA2LSB, Elf64_Ehdr, Elf64_Phdr, PT_LOAD};
use vm_memory::ByteValued;

use super::error::KernelError;
use super::reader::Reader;
use crate::layout;
use crate::memory::GpaRange;

const EM_X86_64: u16 = 62;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// Most bytes of notes, each of which the loader looks at: a Linux has some hundreds.
const MOST_NOTES: u64 = 64 << 10;
/// Linux is linked into the upper half of the address space (`Documentation/arch/x86/x86_64/mm.rst`).
const KERNEL_HALF: u64 = 1 << 63;

/// Checks `reader` and returns the entry point and the guest physical addresses that the segments cover.
pub(super) fn inspect(reader: &Reader) -> Result<(u64, GpaRange), KernelError> {
    let header = read_header(reader)?;
    let segments = read_segments(reader, &header)?;
    let footprint = check_segments(reader, &segments)?;
    let entry = header.e_entry;
    if !segments.iter().any(|s| (s.p_paddr..s.p_paddr + s.p_memsz).contains(&entry)) {
        return Err(reader.malformed(format!("entry point {entry:#x} is in no segment")));
    }
    if header.e_shoff != 0 {
        let size = u64::from(header.e_shnum) * u64::from(header.e_shentsize);
        reader.need(header.e_shoff, size, "section header table")?;
    }
    Ok((entry, footprint))
}

fn read_header(reader: &Reader) -> Result<Elf64_Ehdr, KernelError> {
    let mut ident = [0; 20];
    reader.read(0, &mut ident, "ELF header")?;
    if ident[4] != ELFCLASS64 {
        return Err(reader.wrong_machine("a 32-bit machine (ELF class 1)"));
    }
    if ident[5] != ELFDATA2LSB {
        return Err(reader.wrong_machine("a big-endian machine"));
    }
    let mut header = Elf64_Ehdr::default();
    reader.read(0, header.as_mut_slice(), "ELF header")?;
    if header.e_machine != EM_X86_64 {
        return Err(reader.wrong_machine(machine_name(header.e_machine)));
    }
    if header.e_type != ET_EXEC && header.e_type != ET_DYN {
        return Err(reader.unknown(format!("an ELF file of type {}, not an executable", header.e_type)));
    }
    if usize::from(header.e_phentsize) != size_of::<Elf64_Phdr>() || header.e_phnum == 0 {
        return Err(reader.malformed(format!(
            "{} program headers of {} bytes; at least one of {} is needed",
            header.e_phnum,
            header.e_phentsize,
            size_of::<Elf64_Phdr>()
        )));
    }
    Ok(header)
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "i386".to_owned(),
        40 => "32-bit Arm".to_owned(),
        183 => "64-bit Arm".to_owned(),
        243 => "RISC-V".to_owned(),
        other => format!("ELF machine {other}"),
    }
}

fn read_segments(reader: &Reader, header: &Elf64_Ehdr) -> Result<Vec<Elf64_Phdr>, KernelError> {
    let size = u64::from(header.e_phnum) * size_of::<Elf64_Phdr>() as u64;
    reader.need(header.e_phoff, size, "program header table")?;
    let mut segments = vec![Elf64_Phdr::default(); usize::from(header.e_phnum)];
    let mut offset = header.e_phoff;
    for segment in &mut segments {
        reader.read(offset, segment.as_mut_slice(), "program header")?;
        offset += size_of::<Elf64_Phdr>() as u64;
    }
    if segments.iter().any(|s| s.p_type == PT_INTERP) {
        return Err(reader.unknown("a dynamically linked program"));
    }
    for note in segments.iter().filter(|s| s.p_type == PT_NOTE) {
        reader.need(note.p_offset, note.p_filesz, "note segment")?;
        if note.p_filesz > MOST_NOTES {
            return Err(reader.malformed(format!("{} bytes of notes: must be at most {MOST_NOTES}", note.p_filesz)));
        }
    }
    // What has bytes in the file is loaded, whatever it says of memory.
    segments.retain(|s| s.p_type == PT_LOAD && (s.p_memsz > 0 || s.p_filesz > 0));
    Ok(segments)
}

fn check_segments(reader: &Reader, segments: &[Elf64_Phdr]) -> Result<GpaRange, KernelError> {
    if !segments.iter().any(|s| s.p_vaddr & KERNEL_HALF != 0) {
        return Err(reader.unknown("an ELF program linked for user space"));
    }
    let (mut start, mut stop) = (u64::MAX, 0);
    for s in segments {
        reader.need(s.p_offset, s.p_filesz, "segment")?;
        let end = s.p_paddr.checked_add(s.p_memsz);
        match end {
            Some(end) if s.p_filesz <= s.p_memsz && s.p_paddr >= layout::HIGH_MEMORY_START => {
                start = start.min(s.p_paddr);
                stop = stop.max(end);
            }
            _ => {
                return Err(reader.malformed(format!(
                    "segment at physical {:#x} with {:#x} bytes in the file and {:#x} in memory; \
                     it must be at or above {:#x} and not wrap",
                    s.p_paddr,
                    s.p_filesz,
                    s.p_memsz,
                    layout::HIGH_MEMORY_START
                )));
            }
        }
    }
    Ok(GpaRange::new(start, stop))
}
