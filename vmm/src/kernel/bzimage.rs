// SPDX-License-Identifier: Apache-2.0
//! `bzImage`: the setup header of the boot protocol, checked against the file.

use linux_loader::loader::bootparam::setup_header;
use vm_memory::ByteValued;

use super::error::KernelError;
use super::reader::Reader;
use crate::layout;
use crate::memory::GpaRange;

/// Offset of the setup header in the file and in the zero page.
const SETUP_HEADER: usize = 0x1f1;
const BOOT_FLAG: u16 = 0xaa55;
const HDRS: u32 = u32::from_le_bytes(*b"HdrS");
/// First protocol version whose header says whether a 64-bit entry exists (`xloadflags`).
const VERSION_XLOADFLAGS: u16 = 0x020c;
const XLF_KERNEL_64: u16 = 1;
/// `loadflags`: the protected-mode part is loaded at 1 MiB, not below.
const LOADED_HIGH: u8 = 1;
/// The 64-bit entry is this far into the protected-mode part.
const ENTRY_64: u64 = 0x200;
const SECTOR: u64 = 512;
/// Bytes of a PE signature, a COFF header, and of a PE32+ optional header up to its fifth data directory, that included.
const PE_HEADER: usize = 24 + 112 + 5 * 8;

/// Checks `reader`; returns the setup header, the 64-bit entry point and the guest physical addresses needed.
pub(super) fn inspect(reader: &Reader) -> Result<(setup_header, u64, GpaRange), KernelError> {
    refuse_other_formats(reader)?;
    let mut header = setup_header::default();
    reader.read(SETUP_HEADER as u64, header.as_mut_slice(), "setup header")?;
    check_header(reader, &header)?;
    check_length(reader, &header)?;

    // The image is loaded at 1 MiB; the decompressor runs there and moves itself to its preferred address.
    let load = layout::HIGH_MEMORY_START;
    let end = load.max(header.pref_address).checked_add(u64::from(header.init_size));
    let Some(end) = end else {
        let (address, size) = (header.pref_address, header.init_size);
        return Err(reader.malformed(format!("preferred address {address:#x} with init size {size:#x} wraps")));
    };
    Ok((header, load + ENTRY_64, GpaRange::new(load, end)))
}

/// Names the formats that people try, where the magic number gives them away.
fn refuse_other_formats(reader: &Reader) -> Result<(), KernelError> {
    let head = reader.prefix::<{ SETUP_HEADER + 0x15 }>();
    match &head[56..60] {
        b"ARM\x64" => return Err(reader.wrong_machine("64-bit Arm")),
        b"RSC\x05" => return Err(reader.wrong_machine("RISC-V")),
        _ => {}
    }
    if head[SETUP_HEADER + 0x11..] == HDRS.to_le_bytes() {
        return Ok(());
    }
    let found = match head[..4] {
        [0x1f, 0x8b, ..] => "gzip-compressed data (unpack it first)",
        [0x28, 0xb5, 0x2f, 0xfd] => "zstd-compressed data (unpack it first)",
        [b'0', b'7', b'0', b'7'] => "a cpio archive (an initramfs?)",
        [b'M', b'Z', ..] if reader.length > head.len() as u64 => "an EFI program without a Linux setup header",
        _ if reader.length < head.len() as u64 => {
            return Err(KernelError::Truncated {
                path: reader.path.clone(),
                part: "setup header",
                needed: (SETUP_HEADER + size_of::<setup_header>()) as u64,
                length: reader.length,
            });
        }
        _ => "no ELF and no Linux setup header",
    };
    Err(reader.unknown(found))
}

fn check_header(reader: &Reader, header: &setup_header) -> Result<(), KernelError> {
    let (flag, version, xloadflags) = (header.boot_flag, header.version, header.xloadflags);
    if flag != BOOT_FLAG {
        return Err(reader.malformed(format!("boot flag {flag:#06x}, should be {BOOT_FLAG:#06x}")));
    }
    if version < VERSION_XLOADFLAGS {
        return Err(reader.malformed(format!(
            "boot protocol {}.{:02}, needed is 2.12 or later (Linux 3.8)",
            version >> 8,
            version & 0xff
        )));
    }
    if xloadflags & XLF_KERNEL_64 == 0 {
        return Err(reader.wrong_machine("32-bit x86 (no 64-bit entry point)"));
    }
    // 1 MiB is where every bzImage may be loaded, relocatable or not.
    if header.loadflags & LOADED_HIGH == 0 {
        return Err(reader.malformed("a zImage, made to be loaded below 1 MiB; a bzImage is needed".to_owned()));
    }
    Ok(())
}

/// The setup sectors, the protected-mode part, and the signature behind them must all be there.
fn check_length(reader: &Reader, header: &setup_header) -> Result<(), KernelError> {
    reader.need(setup_length(header), u64::from(header.syssize) * 16, "compressed kernel")?;
    let (offset, size) = certificate_table(reader);
    reader.need(offset, size, "signature")
}

/// Bytes of the setup part: boot sector and setup sectors, of which 0 means 4.
pub(super) fn setup_length(header: &setup_header) -> u64 {
    let sectors = if header.setup_sects == 0 { 4 } else { u64::from(header.setup_sects) };
    (sectors + 1) * SECTOR
}

/// Whether the image is an EFI program, too.
pub(super) fn has_efi_stub(reader: &Reader) -> bool {
    pe_header(reader).is_some()
}

/// Offset and size of the PE certificate table that a signed image ends with; zeroes if there is none.
///
/// Microsoft PE format, "Optional Header Data Directories": entry 4, whose address is a file offset.
fn certificate_table(reader: &Reader) -> (u64, u64) {
    let entry = 24 + 112 + 4 * 8;
    pe_header(reader).map_or((0, 0), |head| (word(&head, entry), word(&head, entry + 4)))
}

/// The headers of a PE32+ image, up to the certificate table's entry.
fn pe_header(reader: &Reader) -> Option<[u8; PE_HEADER]> {
    const PE32_PLUS: [u8; 2] = 0x20bu16.to_le_bytes();
    let mz = reader.prefix::<0x40>();
    let mut head = [0; PE_HEADER];
    if mz[..2] != *b"MZ" || reader.read(word(&mz, 0x3c), &mut head, "PE header").is_err() {
        return None;
    }
    (head[..4] == *b"PE\0\0" && head[24..26] == PE32_PLUS).then_some(head)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]).into()
}
