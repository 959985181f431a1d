// SPDX-License-Identifier: Apache-2.0
//! `struct boot_params`, the zero page of the boot protocol (`Documentation/arch/x86/zero-page.rst`).

use linux_loader::loader::bootparam::{boot_e820_entry, boot_params, setup_header};

use crate::bits::low32;
use crate::layout;
use crate::memory::{E820Entry, GpaRange};

const BOOT_FLAG: u16 = 0xaa55;
const HDRS: u32 = u32::from_le_bytes(*b"HdrS");
/// Boot loader id "other" (`Documentation/arch/x86/boot.rst`, `type_of_loader`).
const LOADER_OTHER: u8 = 0xff;
/// Physical alignment that an ELF kernel, which brings no setup header, was linked for.
const KERNEL_ALIGNMENT: u32 = 0x0100_0000;

/// The zero page for a kernel.
///
/// `header`: what the image brought, if it is a bzImage. `cmdline_length`: bytes without the terminating zero.
/// `setup_data`: GPA of the first `struct setup_data`, 0 if there is none.
/// `initramfs`: where it is, if there is one. `e820` must have at most 128 entries (the memory plan sees to that).
#[must_use]
pub fn build(
    header: Option<setup_header>,
    cmdline_length: usize,
    setup_data: u64,
    initramfs: Option<GpaRange>,
    e820: &[E820Entry],
) -> boot_params {
    let mut params = boot_params { acpi_rsdp_addr: layout::ACPI.start, ..Default::default() };
    params.hdr = header.unwrap_or(setup_header {
        boot_flag: BOOT_FLAG,
        header: HDRS,
        kernel_alignment: KERNEL_ALIGNMENT,
        ..Default::default()
    });
    params.hdr.type_of_loader = LOADER_OTHER;
    params.hdr.cmd_line_ptr = low32(layout::CMDLINE.start);
    params.hdr.cmdline_size = low32(cmdline_length as u64);
    params.hdr.setup_data = setup_data;
    if let Some(range) = initramfs {
        let size = range.length();
        params.hdr.ramdisk_image = low32(range.start());
        params.ext_ramdisk_image = low32(range.start() >> 32);
        params.hdr.ramdisk_size = low32(size);
        params.ext_ramdisk_size = low32(size >> 32);
    }
    let mut table = params.e820_table;
    for (slot, entry) in table.iter_mut().zip(e820) {
        *slot = boot_e820_entry { addr: entry.range.start(), size: entry.range.length(), r#type: entry.kind as u32 };
        params.e820_entries += 1;
    }
    params.e820_table = table;
    params
}
