// SPDX-License-Identifier: Apache-2.0
//! The boot CPU at the kernel's 64-bit entry (`Documentation/arch/x86/boot.rst`, "64-bit Boot Protocol"): long mode,
//! paging on with an identity map, flat segments with the protocol's selectors, RSI pointing to the zero page.

use kvm_bindings::{kvm_msr_entry, kvm_regs, kvm_segment, kvm_sregs};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};

use crate::bits::low16;
use crate::layout::{self, PAGE_SIZE};
use crate::memory::GuestMemory;

/// `__BOOT_CS` and `__BOOT_DS`: indexes 2 and 3 of the table.
const SELECTOR_CODE: u16 = 0x10;
const SELECTOR_DATA: u16 = 0x18;
/// Descriptors: 64-bit code, execute and read; flat data, read and write; both present, ring 0, 4 GiB limit.
const GDT: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];

const CR0_PE: u64 = 1;
const CR0_ET: u64 = 1 << 4;
const CR0_PG: u64 = 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME: u64 = 1 << 8;
const EFER_LMA: u64 = 1 << 10;
/// RFLAGS bit 1 is always one.
const RFLAGS_FIXED: u64 = 1 << 1;

const PTE_PRESENT_WRITABLE: u64 = 0b11;
const PTE_LARGE: u64 = 1 << 7;
const LARGE_PAGE: u64 = 2 << 20;
const ENTRIES: u64 = 512;

/// Of `IA32_APIC_BASE`: the local APIC is an x2APIC.
pub const APIC_BASE_X2APIC: u64 = 1 << 10;

const MSR_MISC_ENABLE: u32 = 0x1a0;
const MISC_ENABLE_FAST_STRING: u64 = 1;
const MSR_MTRR_DEF_TYPE: u32 = 0x2ff;
/// MTRRs on, default type write-back: a guest that trusts MTRRs must not find its RAM uncached.
const MTRR_ON_WRITE_BACK: u64 = 1 << 11 | 6;

/// Model-specific registers that every vCPU starts with. Firmware finds MTRRs as a reset leaves them, off, and sets them itself.
#[must_use]
pub fn msrs(firmware: bool) -> [kvm_msr_entry; 2] {
    let entry = |index, data| kvm_msr_entry { index, data, ..Default::default() };
    let memory_types = if firmware { 0 } else { MTRR_ON_WRITE_BACK };
    [entry(MSR_MISC_ENABLE, MISC_ENABLE_FAST_STRING), entry(MSR_MTRR_DEF_TYPE, memory_types)]
}

/// Writes the descriptor table and the identity page tables of the first 4 GiB, in 2 MiB pages.
pub fn write_tables(memory: &GuestMemory) -> Result<(), GuestMemoryError> {
    for (index, descriptor) in (0u64..).zip(GDT) {
        memory.write_obj(descriptor, GuestAddress(layout::GDT.start + index * 8))?;
    }
    let pml4 = layout::BOOT_PAGE_TABLES.start;
    let pdpt = pml4 + PAGE_SIZE;
    let directories = pdpt + PAGE_SIZE;
    memory.write_obj(pdpt | PTE_PRESENT_WRITABLE, GuestAddress(pml4))?;
    let count = (layout::BOOT_PAGE_TABLES.end - directories) / PAGE_SIZE;
    for d in 0..count {
        let directory = directories + d * PAGE_SIZE;
        memory.write_obj(directory | PTE_PRESENT_WRITABLE, GuestAddress(pdpt + d * 8))?;
        for e in 0..ENTRIES {
            let page = (d * ENTRIES + e) * LARGE_PAGE;
            memory.write_obj(page | PTE_PRESENT_WRITABLE | PTE_LARGE, GuestAddress(directory + e * 8))?;
        }
    }
    Ok(())
}

/// General registers for the entry point at GPA `entry`.
#[must_use]
pub fn general(entry: u64) -> kvm_regs {
    kvm_regs { rip: entry, rsi: layout::ZERO_PAGE.start, rflags: RFLAGS_FIXED, ..Default::default() }
}

/// `reset`, the special registers that KVM gave a new vCPU, switched to long mode.
#[must_use]
pub fn special(reset: kvm_sregs) -> kvm_sregs {
    let mut sregs = reset;
    sregs.gdt.base = layout::GDT.start;
    sregs.gdt.limit = low16(size_of_val(&GDT) as u64 - 1);
    sregs.idt.base = 0;
    sregs.idt.limit = 0;
    sregs.cs = segment(SELECTOR_CODE, 0xb, true);
    let data = segment(SELECTOR_DATA, 0x3, false);
    (sregs.ds, sregs.es, sregs.fs, sregs.gs, sregs.ss) = (data, data, data, data, data);
    sregs.cr0 = CR0_PE | CR0_ET | CR0_PG;
    sregs.cr3 = layout::BOOT_PAGE_TABLES.start;
    sregs.cr4 |= CR4_PAE;
    sregs.efer |= EFER_LME | EFER_LMA;
    sregs
}

/// The hidden part of a segment register, as the descriptor in [`GDT`] would load it.
fn segment(selector: u16, type_: u8, code: bool) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_,
        present: 1,
        dpl: 0,
        db: u8::from(!code),
        s: 1,
        l: u8::from(code),
        g: 1,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks the tables as the processor does.
    fn translate(memory: &GuestMemory, address: u64) -> Option<u64> {
        let mut table = layout::BOOT_PAGE_TABLES.start;
        for level in (1..4).rev() {
            let index = address >> (12 + 9 * level) & (ENTRIES - 1);
            let entry: u64 = memory.read_obj(GuestAddress(table + index * 8)).ok()?;
            if entry & 1 == 0 {
                return None;
            }
            if entry & PTE_LARGE != 0 {
                return Some((entry & !(LARGE_PAGE - 1)) + address % LARGE_PAGE);
            }
            table = entry & !0xfff;
        }
        None
    }

    #[test]
    fn first_four_gib_are_identity_mapped_and_nothing_else() {
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        write_tables(&memory).unwrap();
        for address in [0, 0x1000, 0x10_0200, 0x1fff_ffff, 0xd000_0000, 0xffff_ffff] {
            assert_eq!(translate(&memory, address), Some(address));
        }
        assert_eq!(translate(&memory, 1 << 32), None);
    }

    #[test]
    fn segments_match_the_descriptors_in_the_table() {
        let sregs = special(kvm_sregs::default());
        for (segment, descriptor) in [(sregs.cs, GDT[2]), (sregs.ds, GDT[3])] {
            let access = u64::from(segment.type_) | u64::from(segment.s) << 4 | u64::from(segment.present) << 7;
            assert_eq!(descriptor >> 40 & 0xff, access);
            let flags = u64::from(segment.l) << 1 | u64::from(segment.db) << 2 | u64::from(segment.g) << 3;
            assert_eq!(descriptor >> 52 & 0xf, flags);
        }
    }
}
