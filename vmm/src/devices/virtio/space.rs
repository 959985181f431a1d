// SPDX-License-Identifier: Apache-2.0
//! A device's configuration space: what the driver reads of it, and which of its states that is.

use std::sync::Mutex;

use crate::devices::bus::lock;

/// What there is to read, and how often it has changed.
#[derive(Debug)]
pub(super) struct Space(Mutex<(Vec<u8>, u32)>);

impl Space {
    pub(super) const fn new(bytes: Vec<u8>) -> Self {
        Self(Mutex::new((bytes, 0)))
    }

    /// Fills `data` with what is at `offset`. Fields behind the end belong to features that are not offered.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        let (bytes, _) = &*lock(&self.0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let fields = bytes.iter().skip(start).copied().chain(std::iter::repeat(0));
        data.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    }

    /// Another number each time that it has changed: a driver that reads several parts looks at it before and after.
    pub(super) fn generation(&self) -> u32 {
        lock(&self.0).1
    }

    /// From now on it is `bytes`.
    pub(super) fn change(&self, bytes: Vec<u8>) {
        let (there, generation) = &mut *lock(&self.0);
        *there = bytes;
        *generation = generation.wrapping_add(1);
    }
}
