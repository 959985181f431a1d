// SPDX-License-Identifier: Apache-2.0
//! A device's configuration space: what the driver reads there, and how it hears that it has become another one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::interrupt::Interrupt;
use crate::devices::bus::lock;

/// What transport and worker share of it.
pub(super) struct ConfigSpace {
    content: Mutex<Vec<u8>>,
    /// How often it has changed. A driver that reads in pieces looks before and after.
    generation: AtomicU32,
    interrupt: Arc<dyn Interrupt>,
}

impl ConfigSpace {
    pub(super) fn new(content: Vec<u8>, interrupt: Arc<dyn Interrupt>) -> Self {
        Self { content: Mutex::new(content), generation: AtomicU32::new(0), interrupt }
    }

    /// Fills `data` with what is at `offset`. Fields behind the end belong to features that are not offered.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        let content = lock(&self.content);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let fields = content.iter().skip(start).copied().chain(std::iter::repeat(0));
        data.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst)
    }

    /// From now on it is `content`, and the driver hears of it. One that is not there yet reads it later anyway.
    pub(super) fn set(&self, content: Vec<u8>) {
        {
            let mut place = lock(&self.content);
            *place = content;
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        self.interrupt.changed();
    }
}
