// SPDX-License-Identifier: Apache-2.0
//! A correct driver, as far as a test lets it be.

use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::devices::bus::BusDevice;
use crate::devices::running::{Running, WorkerError};
use crate::devices::virtio::{Resizer, VirtioDevice, VirtioMmio, VirtioWorker};
use crate::memory::GuestMemory;

pub(super) const MEMORY_SIZE: usize = 0x80_0000;
pub(super) const QUEUE_SIZE: u16 = 32;
/// Tables and rings are below; buffers are from here on.
pub(super) const BUFFERS: u64 = 0x1_0000;
const DESCRIPTORS: u64 = 0x1000;
pub(super) const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x6000;
/// Where indirect tables go.
const INDIRECT: u64 = 0x8000;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT_FLAG: u16 = 4;

/// One descriptor: address, length, flags, next.
pub(super) type Descriptor = (u64, u32, u16, u16);

pub(super) struct Driver {
    pub(super) transport: VirtioMmio,
    /// None once they have threads.
    workers: Vec<VirtioWorker>,
    pub(super) memory: GuestMemory,
    pub(super) irq: EventFd,
    /// The one of its queues that it uses.
    queue: u16,
    available: u16,
}

impl Driver {
    /// A device that nobody has touched.
    pub(super) fn new(device: Box<dyn VirtioDevice>) -> Self {
        let memory = crate::memory::guest::from_ranges(&[(GuestAddress(0), MEMORY_SIZE)]).unwrap();
        let irq = EventFd::new(EFD_NONBLOCK).unwrap();
        let (transport, workers) = VirtioMmio::new(device, &memory, irq.try_clone().unwrap()).unwrap();
        Self::with(transport, workers, memory, irq)
    }

    /// The same on a transport that is there.
    pub(super) const fn with(
        transport: VirtioMmio,
        workers: Vec<VirtioWorker>,
        memory: GuestMemory,
        irq: EventFd,
    ) -> Self {
        Self { transport, workers, memory, irq, queue: 0, available: 0 }
    }

    /// A device that runs, all but `refused` of its features accepted.
    pub(super) fn running(device: Box<dyn VirtioDevice>, refused: u64) -> Self {
        Self::running_on(0, device, refused)
    }

    /// The same with another queue.
    pub(super) fn running_on(queue: u16, device: Box<dyn VirtioDevice>, refused: u64) -> Self {
        let mut driver = Self { queue, ..Self::new(device) };
        driver.start(refused);
        driver
    }

    /// The same driver and its memory, of another device on a transport of its own.
    pub(super) fn with_device(self, device: Box<dyn VirtioDevice>) -> Self {
        let irq = EventFd::new(EFD_NONBLOCK).unwrap();
        let (transport, workers) = VirtioMmio::new(device, &self.memory, irq.try_clone().unwrap()).unwrap();
        Self { transport, workers, irq, ..self }
    }

    pub(super) fn get(&mut self, register: u64) -> u32 {
        let mut data = [0; 4];
        self.transport.read(register, &mut data);
        u32::from_le_bytes(data)
    }

    pub(super) fn set(&mut self, register: u64, value: u32) {
        assert_eq!(self.transport.write(register, &value.to_le_bytes()), None);
    }

    pub(super) fn offered(&mut self) -> u64 {
        self.set(0x14, 1);
        let high = self.get(0x10);
        self.set(0x14, 0);
        u64::from(high) << 32 | u64::from(self.get(0x10))
    }

    pub(super) fn accept(&mut self, features: u64) {
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.set(0x24, select);
            self.set(0x20, half);
        }
    }

    /// From now on it uses another queue.
    pub(super) fn select(&mut self, queue: u16) {
        self.queue = queue;
    }

    /// Describes its queue and says that it is ready.
    pub(super) fn describe_queue(&mut self, size: u32, [descriptors, available, used]: [u64; 3]) {
        self.set(0x30, self.queue.into());
        self.set(0x38, size);
        for (register, address) in [(0x80, descriptors), (0x90, available), (0xa0, used)] {
            self.set(register, address as u32);
            self.set(register + 4, (address >> 32) as u32);
        }
        self.set(0x44, 1);
    }

    /// From reset to `DRIVER_OK`.
    pub(super) fn start(&mut self, refused: u64) {
        for status in [0, 1, 3] {
            self.set(0x70, status);
        }
        let features = self.offered() & !refused;
        self.accept(features);
        self.set(0x70, 11);
        assert_eq!(self.get(0x70), 11, "features refused");
        // Rings start empty.
        self.memory.write_slice(&[0; 0x1000], GuestAddress(AVAILABLE)).unwrap();
        self.memory.write_slice(&[0; 0x1000], GuestAddress(USED)).unwrap();
        self.available = 0;
        self.describe_queue(QUEUE_SIZE.into(), [DESCRIPTORS, AVAILABLE, USED]);
        self.set(0x70, 15);
        assert_eq!(self.get(0x70), 15);
    }

    pub(super) fn write_descriptor(&self, table: u64, index: u16, descriptor: Descriptor) {
        let (address, length, flags, next) = descriptor;
        let at = GuestAddress(table + 16 * u64::from(index));
        self.memory
            .write_obj(
                u128::from(address) | u128::from(length) << 64 | u128::from(flags) << 96 | u128::from(next) << 112,
                at,
            )
            .unwrap();
    }

    /// Puts descriptors into the table, from index `first` on, as given.
    pub(super) fn table(&self, first: u16, descriptors: &[Descriptor]) {
        for (index, descriptor) in (first..).zip(descriptors) {
            self.write_descriptor(DESCRIPTORS, index, *descriptor);
        }
    }

    /// Puts a chain of (address, length, device writes) into the table from index `first` on.
    pub(super) fn chain(&self, first: u16, segments: &[(u64, u32, bool)]) {
        for (index, &(address, length, write)) in (0..).zip(segments) {
            let last = usize::from(index) + 1 == segments.len();
            let flags = if write { WRITE } else { 0 } | if last { 0 } else { NEXT };
            self.write_descriptor(DESCRIPTORS, first + index, (address, length, flags, first + index + 1));
        }
    }

    /// The same in an indirect table, which descriptor `first` names.
    pub(super) fn indirect_chain(&self, first: u16, segments: &[(u64, u32, bool)]) {
        let table = INDIRECT + u64::from(first) * 0x400;
        for (index, &(address, length, write)) in (0..).zip(segments) {
            let last = usize::from(index) + 1 == segments.len();
            let flags = if write { WRITE } else { 0 } | if last { 0 } else { NEXT };
            self.write_descriptor(table, index, (address, length, flags, index + 1));
        }
        let length = 16 * u32::try_from(segments.len()).unwrap();
        self.write_descriptor(DESCRIPTORS, first, (table, length, INDIRECT_FLAG, 0));
    }

    /// Offers the chain that starts at descriptor `head`.
    pub(super) fn offer(&mut self, head: u16) {
        let slot = AVAILABLE + 4 + 2 * u64::from(self.available % QUEUE_SIZE);
        self.memory.write_obj(head, GuestAddress(slot)).unwrap();
        self.available = self.available.wrapping_add(1);
        self.memory.write_obj(self.available, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    /// Sets the available ring's index to anything.
    pub(super) fn set_available(&mut self, index: u16) {
        self.memory.write_obj(index, GuestAddress(AVAILABLE + 2)).unwrap();
    }

    /// Notifies the device and lets it work until it has nothing left to do. Returns how many turns it took.
    pub(super) fn kick(&mut self) -> usize {
        self.set(0x50, self.queue.into());
        let mut turns = 0;
        while self.serve() {
            turns += 1;
            assert!(turns < 1000, "the device does not come to an end");
        }
        self.settle();
        turns
    }

    /// Gives its queue a turn, if it was notified.
    pub(super) fn serve(&mut self) -> bool {
        let queue = self.queue.into();
        self.workers.iter_mut().any(|worker| worker.serve(queue))
    }

    /// Waits for what is in flight.
    pub(super) fn settle(&mut self) {
        assert!(self.workers.iter_mut().all(VirtioWorker::settle), "somebody gave an order");
    }

    /// From now on a thread does so.
    pub(super) fn start_worker(&mut self) -> Running {
        self.start_workers().pop().unwrap()
    }

    /// The same, if one can be had.
    pub(super) fn try_start_worker(&mut self) -> Result<Running, WorkerError> {
        self.workers.pop().unwrap().start("test".to_owned(), || Some(()))
    }

    /// By which its device gets another size once it has a thread.
    pub(super) fn resizer(&self) -> Arc<Resizer> {
        self.workers.first().unwrap().resizer()
    }

    /// The same of a device with several.
    pub(super) fn start_workers(&mut self) -> Vec<Running> {
        let workers = std::mem::take(&mut self.workers);
        workers.into_iter().map(|worker| worker.start("test".to_owned(), || Some(())).unwrap()).collect()
    }

    pub(super) fn used_index(&self) -> u16 {
        self.memory.read_obj(GuestAddress(USED + 2)).unwrap()
    }

    /// Entry `index` of the used ring: head and bytes written.
    pub(super) fn used(&self, index: u16) -> (u32, u32) {
        let entry: u64 = self.memory.read_obj(GuestAddress(USED + 4 + 8 * u64::from(index % QUEUE_SIZE))).unwrap();
        (entry as u32, (entry >> 32) as u32)
    }

    /// Offers one chain, lets the device do it and returns the bytes that it says it wrote.
    pub(super) fn request(&mut self, segments: &[(u64, u32, bool)]) -> u32 {
        self.chain(0, segments);
        let before = self.used_index();
        self.offer(0);
        self.kick();
        assert_eq!(self.used_index(), before.wrapping_add(1), "one request, one used entry");
        let (head, written) = self.used(before);
        assert_eq!(head, 0);
        written
    }

    pub(super) fn needs_reset(&mut self) -> bool {
        self.get(0x70) & 0x40 != 0
    }

    pub(super) fn bytes(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }
}
