// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use super::*;
use crate::cpu::topology::CpuTopology;
use crate::layout;
use crate::memory::{Backing, GpaRange, HostPages, Slot};
use crate::numa::Nodes;

const SLOTS: [Slot; 2] = [slot(0), slot(1 << 32)];

const fn slot(start: u64) -> Slot {
    let backing = Backing { pages: HostPages::Base, shared: false, host_node: None };
    Slot::new(GpaRange::of(start, 512 << 20), backing)
}

fn machine(vcpus: u16) -> Machine<'static> {
    Machine {
        cpus: CpuTopology::flat(vcpus),
        virtio_devices: layout::VIRTIO_SLOTS,
        held_memory: false,
        serial: true,
        nodes: Nodes::leaked(vcpus),
        slots: &SLOTS,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn index_at(bytes: &[u8], at: usize) -> usize {
    u32_at(bytes, at) as usize
}

fn name_at(bytes: &[u8], at: usize) -> String {
    let field = &bytes[at..at + NAME];
    let end = field.iter().position(|byte| *byte == 0).expect("a zero behind the name");
    String::from_utf8(field[..end].to_vec()).unwrap()
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Does what EDK2's `OvmfPkg/AcpiPlatformDxe/QemuFwCfgAcpi.c` does in its first pass; file `i` goes to `bases[i]`.
fn execute(files: &Files, bases: &[u64]) -> BTreeMap<String, (u64, Vec<u8>)> {
    let source = BTreeMap::from([(RSDP_FILE, &files.rsdp), (TABLES_FILE, &files.tables)]);
    let mut placed: BTreeMap<String, (u64, Vec<u8>)> = BTreeMap::new();
    assert_eq!(files.script.len() % COMMAND, 0);
    for command in files.script.chunks(COMMAND) {
        let name = name_at(command, 4);
        match u32_at(command, 0) {
            ALLOCATE => {
                let (alignment, zone) = (u32_at(command, 60), command[64]);
                assert!(alignment.is_power_of_two() && alignment <= 4096);
                assert!(matches!(zone, ZONE_HIGH | ZONE_FSEG));
                let base = bases[placed.len()];
                let content = source[name.as_str()].clone();
                assert!(placed.insert(name, (base, content)).is_none(), "a file is fetched once");
            }
            ADD_POINTER => {
                let (pointee, size) = (&placed[&name_at(command, 60)], usize::from(command[120]));
                let (base, length) = (pointee.0, pointee.1.len() as u64);
                assert_eq!(size, 8);
                let offset = index_at(command, 116);
                let field = &mut placed.get_mut(&name).unwrap().1[offset..offset + size];
                let target = u64::from_le_bytes((&*field).try_into().unwrap());
                assert!(target < length, "a pointer points into its file");
                field.copy_from_slice(&(base + target).to_le_bytes());
            }
            ADD_CHECKSUM => {
                let [result, start, length] = [60, 64, 68].map(|at| index_at(command, at));
                let bytes = &mut placed.get_mut(&name).unwrap().1;
                bytes[result] = sum(&bytes[start..start + length]).wrapping_neg();
            }
            other => panic!("command {other}"),
        }
    }
    placed
}

#[test]
fn a_script_places_the_tables_as_flatboot_does() {
    for vcpus in [1, 2, 255, 288] {
        for base in [0x10_0000, 0x7fff_f000, 0x12_3456_7000] {
            let placed = execute(&files(&machine(vcpus)), &[base, 0xf_0000]);
            let (rsdp, tables) = Tables::new(&machine(vcpus)).at(base);
            assert_eq!(placed[RSDP_FILE], (0xf_0000, rsdp));
            assert_eq!(placed[TABLES_FILE], (base, tables));
        }
    }
}

/// The tables that EDK2 finds in its second pass: what pointers point to, with a length and a sum that are right.
#[test]
fn every_pointer_leads_to_a_table_whose_sum_is_right() {
    let base = 0x7_0000_0000;
    let files = files(&machine(16));
    let placed = execute(&files, &[base, 0xf_0000]);
    let tables = &placed[TABLES_FILE].1;
    let mut found = Vec::new();
    for command in files.script.chunks(COMMAND).filter(|command| u32_at(command, 0) == ADD_POINTER) {
        let (holder, offset) = (&placed[&name_at(command, 4)].1, index_at(command, 116));
        let target = u64::from_le_bytes(holder[offset..offset + 8].try_into().unwrap()) - base;
        let table = &tables[usize::try_from(target).unwrap()..];
        let length = index_at(table, 4);
        assert_eq!(sum(&table[..length]), 0);
        found.push(String::from_utf8(table[..4].to_vec()).unwrap());
    }
    found.sort();
    assert_eq!(found, ["APIC", "DSDT", "FACP", "SRAT", "XSDT"]);
    let rsdp = &placed[RSDP_FILE].1;
    assert_eq!((&rsdp[..8], sum(&rsdp[..20]), sum(rsdp)), (&b"RSD PTR "[..], 0, 0));
}

#[test]
fn checksums_are_zero_before_they_are_set() {
    // Firmware adds up what is there, the old checksum included.
    let files = files(&machine(2));
    for command in files.script.chunks(COMMAND).filter(|command| u32_at(command, 0) == ADD_CHECKSUM) {
        let piece = if name_at(command, 4) == RSDP_FILE { &files.rsdp } else { &files.tables };
        assert_eq!(piece[index_at(command, 60)], 0);
    }
}
