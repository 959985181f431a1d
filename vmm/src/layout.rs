// SPDX-License-Identifier: Apache-2.0
//! Where everything is in the guest's physical address space, its I/O ports and its interrupt lines.
//!
//! This is the only file that says so. Ranges are half-open, `start..end`, in bytes of guest physical address (GPA).
//! The compile-time checks at the end hold the order and the disjointness.

use std::ops::Range;

use flatboot_handoff::SECTION_SIZE;

/// Bytes in a page.
pub const PAGE_SIZE: u64 = 0x1000;

// ---- Below 1 MiB: what the boot CPU needs before the kernel has its own ----------------------------------------

/// The boot CPU's global descriptor table.
pub const GDT: Range<u64> = 0x500..0x600;
/// `struct boot_params`, the boot protocol's zero page.
pub const ZERO_PAGE: Range<u64> = 0x7000..0x8000;
/// Identity page tables for the first 4 GiB: one PML4, one PDPT, four page directories of 2 MiB entries.
pub const BOOT_PAGE_TABLES: Range<u64> = 0x9000..0xf000;
/// The kernel command line with its terminating zero.
pub const CMDLINE: Range<u64> = 0x20000..0x21000;
/// `struct setup_data` followed by the memory hand-off table.
pub const HANDOFF: Range<u64> = 0x30000..0x70000;
/// Bytes of a `struct setup_data` before its payload: next (u64), type (u32), length (u32).
pub const SETUP_DATA_HEADER: u64 = 16;
/// Most bytes that a hand-off table has room for.
pub const HANDOFF_MAX: u64 = HANDOFF.end - HANDOFF.start - SETUP_DATA_HEADER;
/// End of conventional memory; above it PC firmware would keep its extended data.
pub const CONVENTIONAL_END: u64 = 0x9fc00;
/// ACPI tables, the RSDP first.
pub const ACPI: Range<u64> = 0xe0000..0x100000;

// ---- RAM --------------------------------------------------------------------------------------------------------

/// Where RAM goes on after the legacy hole, and where kernels are loaded from.
pub const HIGH_MEMORY_START: u64 = 0x100000;
/// RAM below 4 GiB is kept to four sections: Linux fills the memmap of its low zones serially, with any kernel.
pub const LOW_MEMORY_MAX: u64 = 4 * SECTION_SIZE;
/// What a PC keeps below 4 GiB, and with it most VMMs: for comparison.
pub const LOW_MEMORY_MAX_PC: u64 = 3 << 30;
/// The rest of RAM starts here.
pub const ABOVE_4G: u64 = 1 << 32;

// ---- Memory-mapped I/O, in the last GiB below 4 GiB ---------------------------------------------------------------

/// virtio-mmio register blocks, [`VIRTIO_MMIO_STRIDE`] bytes each.
pub const VIRTIO_MMIO: Range<u64> = 0xd000_0000..0xd000_e000;
/// Bytes from one virtio-mmio register block to the next.
pub const VIRTIO_MMIO_STRIDE: u64 = PAGE_SIZE;
/// The memory device's registers.
pub const HELD_MEMORY: Range<u64> = 0xd001_0000..0xd001_1000;
/// Power registers where firmware for QEMU's microvm expects its generic event device: sleep control, sleep status, reset.
pub const FIRMWARE_POWER: Range<u64> = 0xfea0_0200..0xfea0_0203;
/// A page of memory with the VM generation ID.
pub const GENERATION: Range<u64> = 0xfea0_1000..0xfea0_2000;
/// The I/O APIC (in the kernel, or our own).
pub const IOAPIC: Range<u64> = 0xfec0_0000..0xfec0_1000;
/// The local APICs (in the kernel).
pub const LAPIC: Range<u64> = 0xfee0_0000..0xfee0_1000;
/// One page that KVM on Intel needs for an identity map, then three for a task state segment; below all that flash may take.
pub const KVM_IDENTITY_MAP: Range<u64> = 0xfeff_c000..0xfeff_d000;
/// See [`KVM_IDENTITY_MAP`].
pub const KVM_TSS: Range<u64> = 0xfeff_d000..0xff00_0000;
/// Room for a firmware image, whose last byte is the last one of it: the processor starts 16 bytes below 4 GiB.
pub const FLASH: Range<u64> = 0xff00_0000..ABOVE_4G;

// ---- I/O ports ------------------------------------------------------------------------------------------------------

/// Keyboard controller command port: 0xfe resets the machine.
pub const PORT_I8042: Range<u64> = 0x64..0x65;
/// Boot marks (see `flatboot_handoff::marks`).
pub const PORT_MARK: Range<u64> = 0x80..0x81;
/// The first 16550A.
pub const PORT_SERIAL: Range<u64> = 0x3f8..0x400;
/// pvpanic: the guest says that it panicked.
pub const PORT_PVPANIC: Range<u64> = 0x505..0x506;
/// `fw_cfg`, by which firmware learns of its machine: selector, data and, from offset 4, the DMA address.
pub const PORT_FW_CFG: Range<u64> = 0x510..0x51c;
/// ACPI sleep control register, then sleep status register, of a hardware-reduced machine.
pub const PORT_SLEEP: Range<u64> = 0x600..0x602;
/// ACPI reset register.
pub const PORT_RESET: Range<u64> = 0x604..0x605;

// ---- Interrupt lines (GSI, I/O APIC pins 0..24) ---------------------------------------------------------------------

/// The serial port.
pub const GSI_SERIAL: u32 = 4;
/// The generic event device: the VM generation ID is another one.
pub const GSI_GENERATION: u32 = 5;
/// The memory device: how much held memory the guest is to own has changed.
pub const GSI_HELD_MEMORY: u32 = 6;
/// The generic event device: the power button.
pub const GSI_POWER_BUTTON: u32 = 9;
/// virtio-mmio device `i` has line `GSI_VIRTIO.start + i`.
pub const GSI_VIRTIO: Range<u32> = 10..24;

/// Most virtio devices that one VM can have.
pub const VIRTIO_SLOTS: usize = (GSI_VIRTIO.end - GSI_VIRTIO.start) as usize;

/// Every named range of guest physical address, in address order.
pub const RANGES: [(&str, Range<u64>); 15] = [
    ("GDT", GDT),
    ("zero page", ZERO_PAGE),
    ("boot page tables", BOOT_PAGE_TABLES),
    ("command line", CMDLINE),
    ("hand-off", HANDOFF),
    ("ACPI tables", ACPI),
    ("virtio-mmio", VIRTIO_MMIO),
    ("memory device", HELD_MEMORY),
    ("firmware's power registers", FIRMWARE_POWER),
    ("VM generation ID", GENERATION),
    ("I/O APIC", IOAPIC),
    ("local APIC", LAPIC),
    ("KVM identity map", KVM_IDENTITY_MAP),
    ("KVM TSS", KVM_TSS),
    ("firmware flash", FLASH),
];

const _: () = {
    let mut i = 1;
    while i < RANGES.len() {
        assert!(RANGES[i - 1].1.end <= RANGES[i].1.start, "ranges overlap or are out of order");
        i += 1;
    }
    assert!(HANDOFF.end <= CONVENTIONAL_END);
    assert!(ACPI.end == HIGH_MEMORY_START);
    assert!(LOW_MEMORY_MAX <= LOW_MEMORY_MAX_PC && LOW_MEMORY_MAX_PC <= VIRTIO_MMIO.start);
    // So that a section is on one side of the hole between low and high memory, and pages of 1 GiB are too.
    assert!(LOW_MEMORY_MAX_PC.is_multiple_of(SECTION_SIZE) && LOW_MEMORY_MAX_PC.is_multiple_of(1 << 30));
    assert!(VIRTIO_MMIO.end - VIRTIO_MMIO.start == VIRTIO_SLOTS as u64 * VIRTIO_MMIO_STRIDE);
};
