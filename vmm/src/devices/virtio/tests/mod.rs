// SPDX-License-Identifier: Apache-2.0
//! The virtio devices as a driver meets them, through registers and queues.
//!
//! The driver is our own and goes through the registers: `virtio_queue`'s mock lays its used ring over the available
//! ring once a queue has more than eight entries.

#![expect(clippy::cast_possible_truncation, reason = "registers are halves of numbers")]

mod block;
mod driver;
mod mmio;
mod rng;

use vmm_sys_util::tempfile::TempFile;

/// A file of `sectors` sectors, each filled with its number plus one.
fn disk(sectors: u8) -> TempFile {
    use std::io::Write;
    let file = TempFile::new().unwrap();
    for sector in 0..sectors {
        file.as_file().write_all(&[sector + 1; 512]).unwrap();
    }
    file
}
