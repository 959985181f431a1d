// SPDX-License-Identifier: Apache-2.0
//! Kernel images of a few hundred bytes, with everything in them that flatboot checks.

use linux_loader::elf::{Elf64_Ehdr, Elf64_Phdr, PT_LOAD};
use linux_loader::loader::bootparam::setup_header;
use vm_memory::ByteValued;

/// GPA that [`vmlinux`] is linked to and starts at, and that [`bzimage`] prefers.
pub(crate) const ENTRY: u64 = 0x0100_0000;
/// What [`vmlinux`] has in its segment.
pub(crate) const TEXT: &[u8] = b"the kernel's text";

/// The smallest file that looks like Linux: ELF header, one segment, its bytes, and a section header table at the end.
pub(crate) fn vmlinux() -> Vec<u8> {
    vmlinux_of(TEXT)
}

/// The same with at most 256 bytes of `text`, which begins at the entry.
pub(crate) fn vmlinux_of(text: &[u8]) -> Vec<u8> {
    let mut header = Elf64_Ehdr::default();
    header.e_ident[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (header.e_type, header.e_machine, header.e_version) = (2, 62, 1);
    (header.e_entry, header.e_phoff, header.e_phentsize, header.e_phnum) = (ENTRY, 64, 56, 1);
    (header.e_shoff, header.e_shentsize, header.e_shnum) = (0x200, 64, 2);
    let segment = Elf64_Phdr {
        p_type: PT_LOAD,
        p_offset: 0x100,
        p_vaddr: 0xffff_ffff_8100_0000,
        p_paddr: ENTRY,
        p_filesz: text.len() as u64,
        p_memsz: 0x10_0000,
        ..Default::default()
    };
    let mut bytes = header.as_slice().to_vec();
    bytes.extend(segment.as_slice());
    bytes.resize(0x100, 0);
    assert!(text.len() <= 0x100, "more than there is room for");
    bytes.extend(text);
    bytes.resize(0x200 + 2 * 64, 0);
    bytes
}

/// A `bzImage` with one setup sector beyond the boot sector and 64 bytes of protected-mode code.
pub(crate) fn bzimage() -> Vec<u8> {
    let header = setup_header {
        setup_sects: 1,
        syssize: 4,
        boot_flag: 0xaa55,
        header: u32::from_le_bytes(*b"HdrS"),
        version: 0x020f,
        loadflags: 1,
        xloadflags: 1,
        code32_start: 0x10_0000,
        pref_address: ENTRY,
        init_size: 0x20_0000,
        ..Default::default()
    };
    let mut bytes = vec![0; 0x1f1];
    bytes.extend(header.as_slice());
    bytes.resize(1024, 0);
    bytes.extend([0x90; 64]);
    bytes
}

/// The same with the headers of an EFI program in its boot sector.
pub(crate) fn efi_bzimage() -> Vec<u8> {
    const PE: usize = 0x40;
    let mut bytes = bzimage();
    bytes[..2].copy_from_slice(b"MZ");
    bytes[0x3c] = 0x40;
    bytes[PE..PE + 4].copy_from_slice(b"PE\0\0");
    bytes[PE + 24..PE + 26].copy_from_slice(&0x20bu16.to_le_bytes());
    bytes
}

/// The smallest file that looks like firmware: 64 KiB, a volume's signature at its start, a jump where the processor starts.
pub(crate) fn firmware() -> Vec<u8> {
    const LENGTH: usize = 64 << 10;
    let mut bytes = vec![0xf4; LENGTH];
    bytes[40..44].copy_from_slice(b"_FVH");
    bytes[LENGTH - 16..LENGTH - 14].copy_from_slice(&[0xeb, 0xfe]);
    bytes
}
