// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::bits::low32;
use crate::cpu::topology::CpuTopology;
use crate::memory::{Backing, GpaRange, Slot};
use crate::numa::{Node, Nodes};
use vm_memory::GuestAddress;

fn low_memory() -> GuestMemory {
    crate::memory::guest::from_ranges(&[(GuestAddress(0), 2 << 20)]).unwrap()
}

fn machine(slots: &[Slot], vcpus: u16) -> Machine<'_> {
    let nodes = Nodes::leaked(vcpus);
    Machine {
        cpus: CpuTopology::flat(vcpus),
        virtio_devices: layout::VIRTIO_SLOTS,
        serial: true,
        held_memory: false,
        nodes,
        slots,
    }
}

fn slot(start: u64, length: u64, node: u32) -> Slot {
    Slot { node, ..Slot::new(GpaRange::of(start, length), Backing::default()) }
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
    let ram: Vec<_> = (0..64).map(|i| slot(i << 30, 1 << 30, 0)).collect();
    let memory = low_memory();
    write(&memory, &machine(&ram, 1024)).unwrap();
    let found = tables(&memory);
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["FACP", "APIC", "SRAT"]);
    for (name, table) in &found {
        assert_eq!(sum(table), 0, "checksum of {name}");
    }
    let dsdt = table_at(&memory, qword(&found[0].1, 140));
    assert_eq!((&dsdt[..4], sum(&dsdt)), (&b"DSDT"[..], 0));
}

#[test]
fn the_memory_device_is_described_where_it_is() {
    for held_memory in [false, true] {
        let memory = low_memory();
        write(&memory, &Machine { held_memory, ..machine(&[slot(0, 1 << 29, 0)], 1) }).unwrap();
        let found = tables(&memory);
        let dsdt = table_at(&memory, qword(&found[0].1, 140));
        let has = |bytes: &[u8]| dsdt.windows(bytes.len()).any(|window| window == bytes);
        let registers = [layout::HELD_MEMORY.start, layout::HELD_MEMORY.end - layout::HELD_MEMORY.start];
        let registers: Vec<u8> = registers.iter().flat_map(|number| low32(*number).to_le_bytes()).collect();
        assert_eq!((has(b"HMEM"), has(b"FLTB0002"), has(&registers)), (held_memory, held_memory, held_memory));
    }
}

#[test]
fn madt_lists_every_vcpu_once() {
    let memory = low_memory();
    write(&memory, &machine(&[], 16)).unwrap();
    let madt = tables(&memory).swap_remove(1).1;
    let (ids, types) = processors(&madt);
    assert_eq!(ids, (0..16).map(|id| (id, id)).collect::<Vec<_>>());
    assert_eq!(types, [vec![0; 16], vec![1]].concat(), "one I/O APIC");
}

/// Number and APIC id of each processor, and the types of all structures.
fn processors(madt: &[u8]) -> (Vec<(u32, u32)>, Vec<u8>) {
    let (mut ids, mut types) = (Vec::new(), Vec::new());
    let mut at = 44;
    while at < madt.len() {
        types.push(madt[at]);
        match madt[at] {
            0 => {
                assert_eq!(dword(madt, at + 4), 1, "enabled");
                ids.push((madt[at + 2].into(), madt[at + 3].into()));
            }
            9 => {
                assert_eq!(dword(madt, at + 8), 1, "enabled");
                ids.push((dword(madt, at + 12), dword(madt, at + 4)));
            }
            _ => {}
        }
        at += usize::from(madt[at + 1]);
    }
    assert_eq!(at, madt.len());
    (ids, types)
}

#[test]
fn ids_from_255_are_those_of_x2apics() {
    let memory = low_memory();
    write(&memory, &machine(&[slot(0, 1 << 29, 0)], 288)).unwrap();
    let found = tables(&memory);
    let (ids, types) = processors(&found[1].1);
    assert_eq!(ids, (0..288).map(|id| (id, id)).collect::<Vec<_>>());
    // The last but one says where NMIs go, the last is the I/O APIC.
    assert_eq!(types, [vec![0; 255], vec![9; 33], vec![10, 1]].concat());
    let (processors, _) = affinities(&found[2].1);
    assert_eq!(processors, (0..288).map(|id| (id, 0)).collect::<Vec<_>>());
}

type Processors = Vec<(u32, u32)>;
type Ranges = Vec<(GpaRange, u32)>;

/// Domains of processors by APIC id, in the order of the table, and of ranges of memory.
fn affinities(srat: &[u8]) -> (Processors, Ranges) {
    let (mut processors, mut memory) = (Vec::new(), Vec::new());
    let mut at = 48;
    while at < srat.len() {
        match srat[at] {
            0 => {
                let domain = u32::from_le_bytes([srat[at + 2], srat[at + 9], srat[at + 10], srat[at + 11]]);
                assert_eq!(dword(srat, at + 4), 1, "enabled");
                processors.push((srat[at + 3].into(), domain));
            }
            2 => {
                assert_eq!(dword(srat, at + 12), 1, "enabled");
                processors.push((dword(srat, at + 8), dword(srat, at + 4)));
            }
            1 => {
                assert_eq!(dword(srat, at + 28), 1, "enabled");
                memory.push((GpaRange::of(qword(srat, at + 8), qword(srat, at + 16)), dword(srat, at + 2)));
            }
            other => panic!("type {other}"),
        }
        at += usize::from(srat[at + 1]);
    }
    (processors, memory)
}

#[test]
fn srat_gives_all_of_one_node_to_it() {
    let slots = [slot(0, 0x2000_0000, 0), slot(1 << 32, 0x1234_0000, 0)];
    let memory = low_memory();
    write(&memory, &machine(&slots, 2)).unwrap();
    let found = tables(&memory);
    assert!(!found.iter().any(|(name, _)| name == "SLIT"));
    let (processors, ranges) = affinities(&found[2].1);
    assert_eq!(processors, [(0, 0), (1, 0)]);
    assert_eq!(ranges, slots.map(|slot| (slot.range, 0)));
}

/// Linux numbers nodes in the order in which it finds their domains, which is that of the hand-off's numbers.
#[test]
fn srat_names_domains_in_the_order_of_nodes() {
    let node = |domain, cpus: &[u16], distances: &[u8]| Node {
        domain,
        cpus: cpus.iter().copied().collect(),
        distances: distances.to_vec(),
    };
    let nodes = [node(300, &[], &[10, 40, 33]), node(2, &[1, 3], &[40, 10, 21]), node(1, &[0, 2], &[33, 21, 10])];
    let nodes = Nodes::in_order(&nodes);
    let slots = [slot(0, 1 << 29, 0), slot(1 << 32, 1 << 30, 0), slot(5 << 30, 1 << 30, 1), slot(6 << 30, 1 << 30, 2)];
    let cpus = CpuTopology::new(1, 3, 1, 2).unwrap();
    let machine = Machine { cpus, nodes: &nodes, ..machine(&slots, 6) };
    let memory = low_memory();
    write(&memory, &machine).unwrap();
    let found = tables(&memory);
    let (processors, ranges) = affinities(&found[2].1);
    // The fourth vCPU is the first of another package, whose ids begin at 4.
    assert_eq!(processors, [(0, 1), (2, 1), (1, 2), (4, 2)]);
    assert_eq!(ranges.iter().map(|(_, domain)| *domain).collect::<Vec<_>>(), [1, 1, 2, 300]);

    let (name, slit) = &found[3];
    assert_eq!((name.as_str(), sum(slit), qword(slit, 36)), ("SLIT", 0, 301));
    let distance = |from: usize, to: usize| slit[44 + from * 301 + to];
    for (one, other, expected) in
        [(1, 2, 21), (1, 300, 33), (2, 300, 40), (0, 1, 20), (7, 200, 20), (5, 5, 10), (2, 2, 10)]
    {
        assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
    }
}
