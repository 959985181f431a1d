// SPDX-License-Identifier: Apache-2.0

use super::*;
use vm_memory::GuestAddress;

fn low_memory() -> GuestMemory {
    crate::memory::guest::from_ranges(&[(GuestAddress(0), 2 << 20)]).unwrap()
}

fn machine(ram: &[GpaRange], vcpus: u16) -> Machine<'_> {
    Machine { cpus: CpuTopology::flat(vcpus), virtio_devices: layout::VIRTIO_SLOTS, serial: true, ram }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn table_at(memory: &GuestMemory, at: u64) -> Vec<u8> {
    let length: u32 = memory.read_obj(GuestAddress(at + 4)).unwrap();
    let mut bytes = vec![0; length as usize];
    memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
    bytes
}

fn dword(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn qword(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Follows RSDP → XSDT and gives the tables by signature.
fn tables(memory: &GuestMemory) -> Vec<(String, Vec<u8>)> {
    let mut rsdp = vec![0; 36];
    memory.read_slice(&mut rsdp, GuestAddress(layout::ACPI.start)).unwrap();
    assert_eq!(&rsdp[..8], b"RSD PTR ");
    assert_eq!(sum(&rsdp), 0);
    let xsdt = table_at(memory, qword(&rsdp, 24));
    assert_eq!(sum(&xsdt), 0);
    xsdt[36..]
        .chunks(8)
        .map(|entry| {
            let table = table_at(memory, u64::from_le_bytes(entry.try_into().unwrap()));
            (String::from_utf8(table[..4].to_vec()).unwrap(), table)
        })
        .collect()
}

#[test]
fn largest_machine_fits_and_every_checksum_holds() {
    let ram: Vec<_> = (0..64).map(|i| GpaRange::of(i << 30, 1 << 30)).collect();
    let memory = low_memory();
    write(&memory, &machine(&ram, 255)).unwrap();
    let found = tables(&memory);
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["FACP", "APIC", "SRAT"]);
    for (name, table) in &found {
        assert_eq!(sum(table), 0, "checksum of {name}");
    }
    let dsdt = table_at(&memory, qword(&found[0].1, 140));
    assert_eq!((&dsdt[..4], sum(&dsdt)), (&b"DSDT"[..], 0));
}

#[test]
fn madt_lists_every_vcpu_once() {
    let memory = low_memory();
    write(&memory, &machine(&[], 16)).unwrap();
    let madt = tables(&memory).swap_remove(1).1;
    let mut ids = Vec::new();
    let mut at = 44;
    while at < madt.len() {
        if madt[at] == 0 {
            assert_eq!(dword(&madt, at + 4), 1, "enabled");
            ids.push(madt[at + 3]);
        }
        at += usize::from(madt[at + 1]);
    }
    assert_eq!(ids, (0..16).collect::<Vec<_>>());
}

#[test]
fn srat_gives_all_ram_to_node_zero() {
    let ram = [GpaRange::of(0, 0x2000_0000), GpaRange::of(1 << 32, 0x1234_0000)];
    let memory = low_memory();
    write(&memory, &machine(&ram, 2)).unwrap();
    let srat = tables(&memory).swap_remove(2).1;
    let mut found = Vec::new();
    let mut at = 48;
    while at < srat.len() {
        if srat[at] == 1 {
            assert_eq!((dword(&srat, at + 2), dword(&srat, at + 28)), (0, 1));
            found.push(GpaRange::of(qword(&srat, at + 8), qword(&srat, at + 16)));
        }
        at += usize::from(srat[at + 1]);
    }
    assert_eq!(found, ram);
}
