// SPDX-License-Identifier: Apache-2.0
//! A device's configuration space (virtio 1.2, section 2.5), which device and transport share.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::interrupt::Interrupt;
use crate::devices::bus::lock;
use crate::state::Mismatch;

/// What the driver reads of a device, and what it may write of that. Clones are the same space.
#[derive(Clone, Default)]
pub struct ConfigSpace(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The transport's, once the device is on one.
    interrupt: OnceLock<Arc<dyn Interrupt>>,
    /// How many drivers have been there.
    resets: AtomicU32,
}

#[derive(Default)]
struct State {
    /// Little-endian.
    bytes: Vec<u8>,
    /// What the driver may write.
    writable: Range<usize>,
    /// Whether there is a driver that wants to hear of changes.
    heard: bool,
    /// Counts the device's changes: a driver that reads in several steps sees by it whether they belong together.
    generation: u32,
}

impl fmt::Debug for ConfigSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSpace").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl From<Vec<u8>> for ConfigSpace {
    /// The device may change these; the driver may not.
    fn from(bytes: Vec<u8>) -> Self {
        Self::with_writable(bytes, 0..0)
    }
}

impl ConfigSpace {
    /// The same; the driver may write what is in `writable`.
    #[must_use]
    pub fn with_writable(bytes: Vec<u8>, writable: Range<usize>) -> Self {
        let state = Mutex::new(State { bytes, writable, heard: false, generation: 0 });
        Self(Arc::new(Shared { state, ..Shared::default() }))
    }

    /// Its `N` bytes from `offset` on; zero behind the end, where fields of features that are not offered would be.
    #[must_use]
    pub fn get<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut data = [0; N];
        self.read(offset, &mut data);
        data
    }

    /// The device changes the bytes from `offset` on. A driver that is ready is told, unless they are what they were.
    pub fn change(&self, offset: usize, data: &[u8]) {
        let mut state = lock(&self.0.state);
        let end = offset.saturating_add(data.len());
        let Some(bytes) = state.bytes.get_mut(offset..end).filter(|bytes| *bytes != data) else { return };
        bytes.copy_from_slice(data);
        state.generation = state.generation.wrapping_add(1);
        // Under the lock: a reset meanwhile would find the interrupt pending behind it.
        if let Some(interrupt) = self.0.interrupt.get().filter(|_| state.heard) {
            interrupt.changed();
        }
    }

    /// From now on changes are told by `interrupt`.
    pub(super) fn connect(&self, interrupt: Arc<dyn Interrupt>) {
        // A device is put on one transport.
        let _ = self.0.interrupt.set(interrupt);
    }

    /// Whether there is a driver now that is to be told of changes.
    pub(super) fn set_heard(&self, heard: bool) {
        lock(&self.0.state).heard = heard;
    }

    /// The driver reads.
    pub(super) fn read(&self, offset: usize, data: &mut [u8]) {
        let state = lock(&self.0.state);
        let fields = state.bytes.iter().skip(offset).copied().chain(std::iter::repeat(0));
        data.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    }

    /// The driver writes; what it may not write stays.
    pub(super) fn write(&self, offset: usize, data: &[u8]) {
        let mut state = lock(&self.0.state);
        let State { bytes, writable, .. } = &mut *state;
        let fields = bytes.iter_mut().enumerate().skip(offset).zip(data);
        for ((_, to), from) in fields.filter(|((index, _), _)| writable.contains(index)) {
            *to = *from;
        }
    }

    /// The driver is gone, and with it what it has written: that is zero again.
    pub(super) fn clear_written(&self) {
        let mut state = lock(&self.0.state);
        let State { bytes, writable, .. } = &mut *state;
        if let Some(written) = bytes.get_mut(writable.clone()) {
            written.fill(0);
        }
    }

    /// A driver's number: another one each time that the device has been reset. A lane that asks as it is activated has that of the
    /// driver whose requests it is given from then on.
    pub(super) fn driver(&self) -> u32 {
        self.0.resets.load(Ordering::SeqCst)
    }

    /// The driver has reset the device; no lane has queues of it any more.
    pub(super) fn count_reset(&self) {
        self.0.resets.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn generation(&self) -> u32 {
        lock(&self.0.state).generation
    }

    /// All of its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        lock(&self.0.state).bytes.clone()
    }

    /// It is that of a device which was saved with these `bytes`, after so many changes: what the driver has written is there again.
    /// What else is different must be in `free`, and counts as another change; whether there is any.
    pub(super) fn restore(&self, saved: &[u8], generation: u32, free: &Range<usize>) -> Result<bool, Mismatch> {
        let mut state = lock(&self.0.state);
        let State { bytes, writable, .. } = &mut *state;
        if bytes.len() != saved.len() {
            return Err(Mismatch::of("length of the configuration space", saved.len(), bytes.len()));
        }
        let mut changed = false;
        for (index, (is, was)) in bytes.iter_mut().zip(saved).enumerate().filter(|(_, (is, was))| *is != *was) {
            if writable.contains(&index) {
                *is = *was;
            } else if free.contains(&index) {
                changed = true;
            } else {
                let must = format!("{is:#x} as it is here: a disk's blocks, an interface's mtu or number of queues");
                return Err(Mismatch::of("configuration", format!("{was:#x} at byte {index}"), must));
            }
        }
        state.generation = generation.wrapping_add(changed.into());
        Ok(changed)
    }
}
