// SPDX-License-Identifier: Apache-2.0
//! A bus: which device answers at which address, for port I/O as for memory-mapped I/O.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::state::{DeviceState, Mismatch, Placed};

/// What a guest's write asks of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestRequest {
    /// Switch the machine off.
    PowerOff,
    /// Start the machine again.
    Reset,
    /// The guest says that its kernel panics. It may not have said yet why: kernels tell the machine first, then the console.
    Panic,
    /// The kernel that panicked has written to its console all that it had to say.
    PanicSaid,
    /// Firmware says that it found nothing to boot.
    NoLoader,
    /// Firmware says that it cannot go on.
    FirmwareFailed,
}

/// A device that answers at a range of addresses.
///
/// Both methods run on the vCPU thread whose access it is, under the device's lock. The guest chooses `offset` (relative
/// to the start of the range), the width and the bytes: every combination must return, without panic and without waiting
/// for anything but host I/O. [`Bus`] passes only accesses that lie wholly inside the range, unless the device is a stream.
pub trait BusDevice: Send {
    /// Fills all of `data`, little-endian, with what the guest reads at `offset`.
    fn read(&mut self, offset: u64, data: &mut [u8]);

    /// Takes what the guest writes at `offset`, little-endian.
    #[must_use]
    fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest>;

    /// What it keeps of what the guest has told it, while nothing works; nothing if it keeps nothing.
    fn save(&mut self) -> Result<Option<DeviceState>, Unsaved> {
        Ok(None)
    }

    /// Makes it what was saved of one like it, before anything works.
    fn restore(&mut self, _state: &DeviceState) -> Result<(), Mismatch> {
        Err(Mismatch::Kind)
    }

    /// It has been restored, and so has all else: interrupts that were on their way may be lost, and so may be what the guest has
    /// asked for last.
    fn awake(&mut self) {}
}

/// Why a device cannot be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsaved {
    /// It waits for its last requests.
    #[error("is being reset by its driver, which takes long: must be over")]
    Resetting,
    /// Who serves it outside of this process does not.
    #[error("the host's kernel does not say how far it is with it: must say so, or be without it by vhost=off")]
    Untold,
}

/// What a device at an address of a bus cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device at {address:#x}")]
pub struct AtAddress<E: std::error::Error + 'static> {
    /// Where.
    pub address: u64,
    /// What.
    pub source: E,
}

/// A device as buses share it.
pub type SharedDevice = Arc<Mutex<dyn BusDevice>>;

/// Why a device cannot be put on a bus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusError {
    /// The range holds no address.
    #[error("device range {0:#x?} is empty")]
    Empty(Range<u64>),
    /// Another device already answers in the range.
    #[error("device range {new:#x?} overlaps {existing:#x?}")]
    Overlap {
        /// The range that was to be added.
        new: Range<u64>,
        /// The range that is there.
        existing: Range<u64>,
    },
}

/// Devices by address. Built once, then shared read-only by the vCPU threads.
#[derive(Clone, Default)]
pub struct Bus {
    /// In address order, disjoint, none empty.
    slots: Vec<Slot>,
}

#[derive(Clone)]
struct Slot {
    range: Range<u64>,
    device: SharedDevice,
    /// Whether an access may go on behind the range's end.
    stream: bool,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.slots.iter().map(|slot| &slot.range)).finish()
    }
}

impl Bus {
    /// A bus on which nothing answers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `device` answer at `range`.
    pub fn insert(&mut self, range: Range<u64>, device: SharedDevice) -> Result<(), BusError> {
        self.add(Slot { range, device, stream: false })
    }

    /// The same for a device that string instructions read from: KVM passes all that a `rep insb` moves as one access to one
    /// port, up to a page of it. The device gets every access that starts in `range`, however long.
    pub fn insert_stream(&mut self, range: Range<u64>, device: SharedDevice) -> Result<(), BusError> {
        self.add(Slot { range, device, stream: true })
    }

    fn add(&mut self, new: Slot) -> Result<(), BusError> {
        let range = &new.range;
        if range.is_empty() {
            return Err(BusError::Empty(range.clone()));
        }
        let at = self.slots.partition_point(|slot| slot.range.end <= range.start);
        if let Some(existing) = self.slots.get(at).filter(|slot| slot.range.start < range.end) {
            return Err(BusError::Overlap { new: range.clone(), existing: existing.range.clone() });
        }
        self.slots.insert(at, new);
        Ok(())
    }

    /// A guest's read of `data.len()` bytes at `address`. What no device claims whole reads as all ones, as on a bus
    /// that nobody drives.
    pub fn read(&self, address: u64, data: &mut [u8]) {
        match self.find(address, data.len()) {
            Some((offset, device)) => lock(device).read(offset, data),
            None => data.fill(0xff),
        }
    }

    /// A guest's write of `data` at `address`. What no device claims whole is lost.
    #[must_use]
    pub fn write(&self, address: u64, data: &[u8]) -> Option<GuestRequest> {
        let (offset, device) = self.find(address, data.len())?;
        lock(device).write(offset, data)
    }

    /// What its devices keep, of those that keep anything.
    pub fn save(&self) -> Result<Vec<Placed>, AtAddress<Unsaved>> {
        let mut saved = Vec::new();
        for Slot { range, device, .. } in &self.slots {
            let address = range.start;
            let state = lock(device).save().map_err(|source| AtAddress { address, source })?;
            saved.extend(state.map(|state| Placed { address, state }));
        }
        Ok(saved)
    }

    /// Makes its devices what was saved of one like it: all that keep anything, and no others.
    pub fn restore(&self, saved: &[Placed]) -> Result<(), AtAddress<Mismatch>> {
        for Placed { address, state } in saved {
            let wrong = |source| AtAddress { address: *address, source };
            let slot = self.slots.iter().find(|slot| slot.range.start == *address).ok_or(wrong(Mismatch::Kind))?;
            lock(&slot.device).restore(state).map_err(wrong)?;
        }
        for Slot { range, device, .. } in &self.slots {
            let address = range.start;
            let keeps = matches!(lock(device).save(), Ok(Some(_)));
            if keeps && !saved.iter().any(|placed| placed.address == address) {
                return Err(AtAddress { address, source: Mismatch::Kind });
            }
        }
        Ok(())
    }

    /// Everything has been restored.
    pub fn awake(&self) {
        self.slots.iter().for_each(|slot| lock(&slot.device).awake());
    }

    /// The device whose range holds all of `address..address + width`, or of a stream its start, and the offset in that range.
    fn find(&self, address: u64, width: usize) -> Option<(u64, &SharedDevice)> {
        let end = address.checked_add(u64::try_from(width).ok()?)?;
        let at = self.slots.partition_point(|slot| slot.range.end <= address);
        let Slot { range, device, stream } = self.slots.get(at)?;
        let holds = range.start <= address && (*stream || end <= range.end);
        holds.then(|| (address - range.start, device))
    }
}

/// Locks, also when a thread panicked with the lock held: a device keeps no invariant that spans its fields, and one
/// thread's failure must not take the vCPUs with it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads as its name, remembers the last write.
    struct Probe {
        name: u8,
        last: Option<(u64, Vec<u8>)>,
    }

    impl BusDevice for Probe {
        fn read(&mut self, _offset: u64, data: &mut [u8]) {
            data.fill(self.name);
        }

        fn write(&mut self, offset: u64, data: &[u8]) -> Option<GuestRequest> {
            self.last = Some((offset, data.to_vec()));
            Some(GuestRequest::Reset)
        }
    }

    fn probe(name: u8) -> Arc<Mutex<Probe>> {
        Arc::new(Mutex::new(Probe { name, last: None }))
    }

    #[test]
    fn an_access_reaches_its_device_only_whole() {
        let mut bus = Bus::new();
        let device = probe(7);
        bus.insert(0x100..0x104, device.clone()).unwrap();
        let mut data = [0; 4];
        bus.read(0x100, &mut data);
        assert_eq!(data, [7; 4]);
        for address in [0xff, 0x101, 0x104, 0, u64::MAX, u64::MAX - 3] {
            bus.read(address, &mut data);
            assert_eq!(data, [0xff; 4], "{address:#x}");
            assert_eq!(bus.write(address, &data), None, "{address:#x}");
        }
        assert_eq!(device.lock().unwrap().last, None);
        assert_eq!(bus.write(0x102, &[1, 2]), Some(GuestRequest::Reset));
        assert_eq!(device.lock().unwrap().last, Some((2, vec![1, 2])));
    }

    #[test]
    fn a_stream_gets_what_starts_in_its_range() {
        let mut bus = Bus::new();
        let device = probe(7);
        bus.insert_stream(0x100..0x104, device.clone()).unwrap();
        let mut data = [0; 4096];
        bus.read(0x103, &mut data);
        assert_eq!(data, [7; 4096]);
        assert_eq!(bus.write(0x101, &data), Some(GuestRequest::Reset));
        assert_eq!(device.lock().unwrap().last, Some((1, data.to_vec())));
        for address in [0xff, 0x104] {
            bus.read(address, &mut data);
            assert_eq!(data, [0xff; 4096], "{address:#x}");
        }
    }

    #[test]
    fn overlaps_and_empty_ranges_are_errors() {
        let mut bus = Bus::new();
        bus.insert(10..20, probe(0)).unwrap();
        for range in [10..20, 0..11, 19..30, 12..13, 0..100] {
            let error = bus.insert(range.clone(), probe(1)).unwrap_err();
            assert_eq!(error, BusError::Overlap { new: range, existing: 10..20 });
        }
        assert_eq!(bus.insert(30..30, probe(1)), Err(BusError::Empty(30..30)));
        bus.insert(20..21, probe(1)).unwrap();
        bus.insert(9..10, probe(1)).unwrap();
    }

    #[test]
    fn a_poisoned_device_still_answers() {
        let mut bus = Bus::new();
        let device = probe(9);
        bus.insert(0..1, device.clone()).unwrap();
        let poisoner = std::thread::spawn(move || {
            let _guard = device.lock();
            panic!("on purpose");
        });
        assert!(poisoner.join().is_err());
        let mut data = [0];
        bus.read(0, &mut data);
        assert_eq!(data, [9]);
    }

    proptest! {
        /// Lookup agrees with a linear search, whatever the order of insertion.
        #[test]
        fn lookup_equals_linear_search(
            ranges in prop::collection::vec((0u64..200, 0u64..20), 0..20),
            accesses in prop::collection::vec((0u64..240, 0usize..9), 1..40),
        ) {
            let mut bus = Bus::new();
            let mut model: Vec<(Range<u64>, u8)> = Vec::new();
            for (name, (start, length)) in (0..).zip(ranges) {
                let range = start..start + length;
                let free = length > 0 && model.iter().all(|(r, _)| r.end <= range.start || range.end <= r.start);
                prop_assert_eq!(bus.insert(range.clone(), probe(name)).is_ok(), free);
                if free {
                    model.push((range, name));
                }
            }
            for (address, width) in accesses {
                let end = address + width as u64;
                let expected = model.iter().find(|(r, _)| r.contains(&address) && end <= r.end).map_or(0xff, |m| m.1);
                let mut data = vec![0xaa; width];
                bus.read(address, &mut data);
                prop_assert!(data.iter().all(|&byte| byte == expected));
            }
        }
    }
}
