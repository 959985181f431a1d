// SPDX-License-Identifier: Apache-2.0

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::exercise::{exercise, fill};
use super::*;
use crate::bits::index;

/// No result depends on it: what is waited for comes at once, or the test fails.
const LONG: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const SELECT: u32 = 8;
const READ: u32 = 2;
const SKIP: u32 = 4;
const WRITE: u32 = 16;
/// Where tests put the structure, and where they let things be read to.
const REQUEST: u64 = 0x1000;
const TARGET: u64 = 0x2000;
/// What guest memory holds beforehand.
const OLD: u8 = 0x5a;

struct Machine {
    device: FwCfg,
    memory: GuestMemory,
    thread: Option<Running>,
}

/// Two MiB, a hole of one, and one more; items of every kind.
fn machine() -> Machine {
    let ranges = [(GuestAddress(0), 2 << 20), (GuestAddress(3 * MIB), 1 << 20)];
    let memory = crate::memory::guest::from_ranges(&ranges).unwrap();
    memory.write_slice(&vec![OLD; 2 << 20], GuestAddress(0)).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"header, then the kernel, then more").unwrap();
    let kernel = Content::File { file: Arc::new(file), start: 8, length: 15 };
    let numbered = [(key::CPUS, Content::half(3)), (key::KERNEL_SIZE, Content::word(15)), (key::KERNEL_DATA, kernel)];
    let files = [
        (FileName::new("opt/z"), Content::Bytes(b"last".to_vec())),
        (FileName::new("etc/e820"), Content::Bytes((0..=255).collect())),
    ];
    let items = Items::new(numbered, files);
    started(items, memory)
}

fn started(items: Items, memory: GuestMemory) -> Machine {
    let mut device = FwCfg::new(items, memory.clone());
    let thread = device.start(|| Some(())).unwrap();
    Machine { device, memory, thread }
}

impl Machine {
    fn select(&mut self, key: u16) {
        assert_eq!(self.device.write(0, &key.to_le_bytes()), None);
    }

    fn data<const N: usize>(&mut self) -> [u8; N] {
        let mut data = [0xee; N];
        self.device.read(1, &mut data);
        data
    }

    fn item<const N: usize>(&mut self, key: u16) -> [u8; N] {
        self.select(key);
        self.data()
    }

    /// A transfer by the structure at `at`; returns the control field afterwards.
    fn transfer_at(&mut self, at: u64, control: u32, length: u32, address: u64) -> Option<u32> {
        let fields = [&control.to_be_bytes()[..], &length.to_be_bytes(), &address.to_be_bytes()].concat();
        let _ = self.memory.write_slice(&fields, GuestAddress(at));
        let (high, low) = (at >> 32, at & 0xffff_ffff);
        for (register, half) in [(4, high), (8, low)] {
            assert_eq!(self.device.write(register, &u32::try_from(half).unwrap().to_be_bytes()), None);
        }
        let answer = || self.memory.read_obj::<[u8; 4]>(GuestAddress(at)).ok().map(u32::from_be_bytes);
        // As a driver does: until there is an answer, however long a file takes.
        while answer().is_some_and(|control| control > 1) {
            thread::yield_now();
        }
        answer()
    }

    fn transfer(&mut self, control: u32, length: u32, address: u64) -> u32 {
        self.transfer_at(REQUEST, control, length, address).unwrap()
    }

    fn memory<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }
}

fn keyed(key: u16) -> u32 {
    u32::from(key) << 16 | SELECT
}

#[test]
fn every_item_can_be_read_byte_by_byte() {
    let mut machine = machine();
    assert_eq!(&machine.item(key::SIGNATURE), b"QEMU");
    assert_eq!(machine.item(key::ID), [3, 0, 0, 0]);
    assert_eq!(machine.item(key::CPUS), [3, 0]);
    assert_eq!(machine.item(key::KERNEL_SIZE), [15, 0, 0, 0]);
    machine.select(0x21);
    let bytes: Vec<_> = (0..4).flat_map(|_| machine.data::<1>()).collect();
    assert_eq!(bytes, b"last");
    // Past the end there are zeroes.
    assert_eq!(machine.data(), [0; 9]);
    // The bit that asked older machines for writing changes nothing.
    assert_eq!(&machine.item(key::SIGNATURE | 0x4000), b"QEMU");
}

/// Reading it would keep the vCPU waiting for a disk.
#[test]
fn a_file_comes_by_dma_only() {
    let mut machine = machine();
    assert_eq!(machine.item(key::KERNEL_DATA), [0; 15]);
    assert_eq!(machine.transfer(keyed(key::KERNEL_DATA) | READ, 20, TARGET), 0);
    assert_eq!(&machine.memory(TARGET), b"then the kernel\0\0\0\0\0\x5a");
}

/// A thread that rests reads as little as one whose disk hangs.
#[test]
fn a_vcpu_does_not_wait_for_a_file() {
    // A pipe cannot be read from a position.
    let (pipe, _writer) = io::pipe().unwrap();
    let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
    let file = Arc::new(File::from(std::os::fd::OwnedFd::from(pipe)));
    let items = Items::new([(key::INITRD_DATA, Content::File { file, start: 0, length: 4 })], []);
    let mut machine = started(items, memory);
    let thread = machine.thread.take().unwrap();
    thread.ask_to_pause();
    thread.await_pause(LONG).unwrap();
    machine.memory.write_slice(&[OLD; 8], GuestAddress(TARGET)).unwrap();
    let fields =
        [&(keyed(key::INITRD_DATA) | READ).to_be_bytes()[..], &4u32.to_be_bytes(), &TARGET.to_be_bytes()].concat();
    for at in [REQUEST, REQUEST + 16, REQUEST + 32] {
        machine.memory.write_slice(&fields, GuestAddress(at)).unwrap();
        assert_eq!(machine.device.write(8, &u32::try_from(at).unwrap().to_be_bytes()), None);
    }
    // All three have come back; the last one was one too many for a driver that waits.
    assert_eq!(&machine.item(key::SIGNATURE), b"QEMU");
    assert!(machine.device.is_busy());
    assert_eq!(machine.memory(REQUEST + 32), 1u32.to_be_bytes());
    assert_ne!(machine.memory::<4>(REQUEST), 0u32.to_be_bytes());
    thread.resume();
    while machine.device.is_busy() {
        thread::yield_now();
    }
    // Files that cannot be read are answered, too.
    assert_eq!([REQUEST, REQUEST + 16].map(|at| machine.memory(at)), [1u32.to_be_bytes(); 2]);
}

/// A file of some pieces, and a device that has nothing else.
fn large() -> (Machine, u64) {
    let length = 2 * dma::PIECE + 5;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; index(length)]).unwrap();
    let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 4 << 20)]).unwrap();
    let items = Items::new([(key::INITRD_DATA, Content::File { file: Arc::new(file), start: 0, length })], []);
    (started(items, memory), length)
}

/// Asks for all of the large file.
fn ask_for(machine: &mut Machine, length: u64) {
    let length = u32::try_from(length).unwrap();
    let fields = [&(keyed(key::INITRD_DATA) | READ).to_be_bytes()[..], &length.to_be_bytes(), &TARGET.to_be_bytes()];
    machine.memory.write_slice(&fields.concat(), GuestAddress(REQUEST)).unwrap();
    assert_eq!(machine.device.write(8, &u32::try_from(REQUEST).unwrap().to_be_bytes()), None);
}

#[test]
fn in_a_pause_nothing_comes_and_behind_it_all() {
    let (mut machine, length) = large();
    let thread = machine.thread.take().unwrap();
    thread.ask_to_pause();
    thread.await_pause(LONG).unwrap();
    ask_for(&mut machine, length);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(
        (machine.memory(TARGET), machine.memory::<1>(REQUEST + 3)),
        ([0], [0x0a]),
        "neither bytes nor an answer"
    );
    thread.resume();
    while machine.device.is_busy() {
        thread::yield_now();
    }
    let mut moved = vec![0; index(length) + 1];
    machine.memory.read_slice(&mut moved, GuestAddress(TARGET)).unwrap();
    assert!(moved[..index(length)].iter().all(|byte| *byte == 7) && moved[index(length)] == 0);
    assert_eq!(machine.memory(REQUEST), 0u32.to_be_bytes());
}

/// A large file does not hold up a pause: it is read by pieces.
#[test]
fn a_file_comes_piece_by_piece() {
    let (machine, length) = large();
    let content = machine.device.items.get(key::INITRD_DATA);
    let fields = [&READ.to_be_bytes()[..], &u32::try_from(length + 3).unwrap().to_be_bytes(), &TARGET.to_be_bytes()];
    machine.memory.write_slice(&fields.concat(), GuestAddress(REQUEST)).unwrap();
    let transfer = Transfer::fetch(&machine.memory, REQUEST).unwrap();
    let mut fetch = transfer.run(&machine.memory, content, 0).unwrap().fetch.unwrap();
    for behind in [dma::PIECE, 2 * dma::PIECE] {
        assert!(!fetch.step(&machine.memory).unwrap());
        assert_eq!(machine.memory(TARGET + behind - 1), [7, 0]);
    }
    assert!(fetch.step(&machine.memory).unwrap());
    assert_eq!(machine.memory(TARGET + length - 1), [7, 0, 0, 0, 0]);
}

/// An answer would go to memory that is somebody else's by then.
#[test]
fn what_ends_in_a_pause_is_not_answered() {
    let (mut machine, length) = large();
    let thread = machine.thread.take().unwrap();
    thread.ask_to_pause();
    thread.await_pause(LONG).unwrap();
    ask_for(&mut machine, length);
    drop(thread);
    assert_eq!((machine.memory(TARGET), machine.memory::<1>(REQUEST + 3)), ([0], [0x0a]));
    assert_eq!(machine.transfer(keyed(key::INITRD_DATA) | READ, 1, TARGET), 1, "there is nobody who reads any more");
}

#[test]
fn the_directory_lists_files_by_name() {
    let mut machine = machine();
    let mut expected = 2u32.to_be_bytes().to_vec();
    for (size, key, name) in [(256u32, 0x20u16, "etc/e820"), (4, 0x21, "opt/z")] {
        expected.extend(size.to_be_bytes());
        expected.extend(key.to_be_bytes());
        expected.extend([0; 2]);
        expected.extend(name.bytes());
        expected.extend(vec![0; 56 - name.len()]);
    }
    assert_eq!(machine.item::<132>(key::DIRECTORY).to_vec(), expected);
    assert_eq!(machine.data(), [0; 4]);
    assert_eq!(machine.item(0x20), [0, 1, 2]);
    assert_eq!(machine.item(0x21), *b"last\0");
}

#[test]
fn an_unknown_key_reads_as_zeroes() {
    let mut machine = machine();
    for key in [2, 0x22, 0x8003, 0xffff, 0x3fff] {
        assert_eq!(machine.item(key), [0; 7], "{key:#x}");
        assert_eq!(machine.transfer(keyed(key) | READ, 7, TARGET), 0);
        assert_eq!(machine.memory(TARGET), [0, 0, 0, 0, 0, 0, 0, OLD]);
        machine.memory.write_slice(&[OLD; 8], GuestAddress(TARGET)).unwrap();
    }
}

#[test]
fn only_whole_registers_can_be_written() {
    let mut machine = machine();
    machine.select(key::SIGNATURE);
    let value = [key::CPUS.to_le_bytes()[0], 0, 0, 0];
    for (offset, width) in
        [(0, 0), (0, 1), (0, 4), (1, 1), (1, 2), (2, 2), (3, 1), (4, 2), (8, 2), (9, 4), (u64::MAX, 2)]
    {
        assert_eq!(machine.device.write(offset, &value[..width]), None);
    }
    assert_eq!(&machine.data(), b"QEMU", "still selected, nothing was written to it");
    let mut read = |offset, width| {
        let mut data = vec![0xee; width];
        machine.device.read(offset, &mut data);
        data
    };
    // The selector is write-only; between the registers there is nothing.
    for (offset, width) in [(0, 1), (0, 2), (2, 1), (3, 4), (12, 1), (u64::MAX, 4)] {
        assert_eq!(read(offset, width), vec![0xff; width], "{offset}");
    }
    for (offset, expected) in [(4, &b"QEMU"[..]), (8, b" CFG"), (4, b"Q"), (5, b"EM"), (11, b"G\xff"), (4, b"QEMU CFG")]
    {
        assert_eq!(read(offset, expected.len()), expected);
    }
}

#[test]
fn dma_reads_skips_and_selects_in_one() {
    let mut machine = machine();
    assert_eq!(machine.transfer(keyed(0x20) | READ, 4, TARGET), 0);
    assert_eq!(machine.memory(TARGET), [0, 1, 2, 3, OLD]);
    // It goes on where it ended, also byte by byte.
    assert_eq!(machine.transfer(SKIP, 10, u64::MAX), 0);
    assert_eq!(machine.data(), [14, 15]);
    assert_eq!(machine.transfer(READ, 2, TARGET + 1), 0);
    assert_eq!(machine.memory(TARGET), [0, 16, 17, 3, OLD]);
    // Reading comes before the others.
    assert_eq!(machine.transfer(keyed(0x21) | READ | SKIP | WRITE, 2, TARGET), 0);
    assert_eq!((machine.memory(TARGET), machine.data()), (*b"la", *b"st"));
    // Selecting alone, and nothing at all.
    assert_eq!(machine.transfer(keyed(key::KERNEL_DATA), 99, u64::MAX), 0);
    assert_eq!(machine.transfer(0, 99, u64::MAX), 0);
    assert_eq!(machine.transfer(READ, 15, TARGET), 0);
    assert_eq!(&machine.memory(TARGET), b"then the kernel");
}

#[test]
fn dma_past_the_end_gives_a_bounded_number_of_zeroes() {
    let mut machine = machine();
    assert_eq!(machine.transfer(keyed(0x21) | READ, 8, TARGET), 0);
    assert_eq!(machine.memory(TARGET), *b"last\0\0\0\0\x5a");
    assert_eq!(machine.transfer(keyed(0x21) | READ, 4 + (64 << 10), TARGET), 0);
    assert_eq!(machine.transfer(keyed(0x21) | READ, 5 + (64 << 10), TARGET + 1), 1);
    assert_eq!(machine.memory(TARGET), *b"last", "nothing is done that cannot be done whole");
    assert_eq!(machine.transfer(keyed(0x21) | SKIP, u32::MAX, 0), 0);
    assert_eq!(machine.data(), [0]);
}

#[test]
fn nothing_can_be_written() {
    let mut machine = machine();
    for operations in [WRITE, WRITE | SKIP, keyed(0x20) | WRITE, keyed(0x77) | WRITE] {
        assert_eq!(machine.transfer(operations, 1, TARGET), 1, "{operations:#x}");
        assert_eq!(machine.transfer(operations, 0, TARGET), 0, "{operations:#x}");
    }
    assert_eq!(machine.item(0x20), [0, 1, 2]);
}

#[test]
fn where_there_is_no_memory_nothing_is_read_to() {
    let mut machine = machine();
    let end = [2 * MIB, 4 * MIB];
    for address in [end[0], end[1], end[0] - 3, end[1] - 3, 3 * MIB - 1, u64::MAX, u64::MAX - 3, u64::MAX - 1, 1 << 63]
    {
        assert_eq!(machine.transfer(keyed(0x20) | READ, 4, address), 1, "{address:#x}");
    }
    assert_eq!(machine.memory(end[0] - 3), [OLD; 3]);
    for address in [0, end[0] - 4, 3 * MIB, end[1] - 4] {
        assert_eq!(machine.transfer(keyed(0x20) | READ, 4, address), 0, "{address:#x}");
        assert_eq!(machine.memory(address), [0, 1, 2, 3]);
    }
    assert_eq!(machine.transfer(keyed(0x20) | READ, u32::MAX, 0), 1);
}

#[test]
fn a_structure_that_is_not_all_memory_is_not_followed() {
    let mut machine = machine();
    machine.select(0x21);
    for at in [2 * MIB - 4, 4 * MIB - 15] {
        assert_eq!(machine.transfer_at(at, keyed(0x20) | READ, 4, TARGET), Some(1), "{at:#x}");
    }
    for at in [2 * MIB, 2 * MIB - 1, u64::MAX, u64::MAX - 15, u64::MAX - 3, 1 << 32] {
        assert_eq!(machine.transfer_at(at, keyed(0x20) | READ, 4, TARGET), None, "{at:#x}");
    }
    assert_eq!((machine.memory(TARGET), machine.data()), ([OLD; 4], *b"last"));
    // The structure may be where its own bytes go.
    assert_eq!(machine.transfer_at(TARGET, keyed(0x21) | READ, 4, TARGET), Some(0));
}

#[test]
fn the_high_half_of_the_address_counts_once() {
    let mut machine = machine();
    assert_eq!(machine.device.write(4, &1u32.to_be_bytes()), None);
    let low = u32::try_from(REQUEST).unwrap().to_be_bytes();
    let request = [&(keyed(0x21) | READ).to_be_bytes()[..], &4u32.to_be_bytes(), &TARGET.to_be_bytes()].concat();
    machine.memory.write_slice(&request, GuestAddress(REQUEST)).unwrap();
    // Above 4 GiB there is nothing; then below.
    assert_eq!(machine.device.write(8, &low), None);
    assert_eq!(machine.memory(TARGET), [OLD; 4]);
    assert_eq!(machine.device.write(8, &low), None);
    assert_eq!(machine.memory(TARGET), *b"last");
}

#[test]
fn a_file_that_has_shrunk_is_an_error_for_dma() {
    let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
    let file = tempfile::tempfile().unwrap();
    let part = Content::File { file: Arc::new(file.try_clone().unwrap()), start: 0, length: 100 };
    let items = Items::new([(key::INITRD_DATA, part)], []);
    let mut machine = started(items, memory);
    assert_eq!(machine.transfer(keyed(key::INITRD_DATA) | READ, 100, TARGET), 1);
}

fn file() -> File {
    let mut file = tempfile::tempfile().unwrap();
    fill(&mut file).unwrap();
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_firmware_breaks_the_device(program in prop::collection::vec(any::<u8>(), 0..2048)) {
        exercise(&program, &file()).unwrap();
    }

    /// What DMA moves is what the port gives.
    #[test]
    fn dma_and_port_agree(skipped in 0u32..300, length in 0usize..300) {
        let mut machine = machine();
        prop_assert_eq!(machine.transfer(keyed(0x20) | SKIP, skipped, 0), 0);
        prop_assert_eq!(machine.transfer(READ, u32::try_from(length).unwrap(), TARGET), 0);
        let mut moved = vec![0; length];
        machine.memory.read_slice(&mut moved, GuestAddress(TARGET)).unwrap();
        prop_assert_eq!(machine.memory::<1>(TARGET + length as u64), [OLD]);
        machine.select(0x20);
        let mut read = vec![0; skipped as usize + length];
        machine.device.read(1, &mut read);
        prop_assert_eq!(&read[skipped as usize..], moved);
    }
}
