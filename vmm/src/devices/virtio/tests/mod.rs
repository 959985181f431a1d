// SPDX-License-Identifier: Apache-2.0
//! The virtio devices as a driver meets them, through registers and queues.
//!
//! The driver is our own and goes through the registers: `virtio_queue`'s mock lays its used ring over the available
//! ring once a queue has more than eight entries.

#![expect(clippy::cast_possible_truncation, reason = "registers are halves of numbers")]

mod balloon;
mod block;
mod console;
mod driver;
mod flight;
mod hang;
mod mmio;
mod net;
mod outside;
mod pairs;
mod rng;
mod saved;
mod stream;
mod worker;

use proptest::prelude::*;
use vmm_sys_util::tempfile::TempFile;

use super::exercise::exercise;

/// A file of `sectors` sectors, each filled with its number plus one.
fn disk(sectors: u8) -> TempFile {
    use std::io::Write;
    let file = TempFile::new().unwrap();
    for sector in 0..sectors {
        file.as_file().write_all(&[sector + 1; 512]).unwrap();
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_program_of_a_guest_breaks_a_device(program in prop::collection::vec(any::<u8>(), 0..2048)) {
        exercise(&program, disk(8).as_file()).unwrap();
    }

    /// The same, for programs that begin with a device that works.
    #[test]
    fn no_program_breaks_a_running_device(
        device in 0u8..7,
        // The last two are those of control queues.
        features in prop_oneof![
            Just(0x3000_0000u32), Just(0x2000_0000), Just(0), Just(0x2042_0100), Just(0x2042_0180),
        ],
        rest in prop::collection::vec(any::<u8>(), 0..4096),
    ) {
        let mut program = vec![device, 0];
        program.extend(features.to_le_bytes());
        program.extend(rest);
        exercise(&program, disk(8).as_file()).unwrap();
    }
}
