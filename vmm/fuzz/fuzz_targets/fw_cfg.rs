// SPDX-License-Identifier: Apache-2.0
//! Any firmware, against `fw_cfg`: ports, and transfers by DMA. The stable-toolchain twin is in `vmm/src/devices/fw_cfg/tests.rs`.
#![no_main]

use std::fs::File;
use std::sync::LazyLock;

use flatboot::devices::fw_cfg::exercise::{exercise, fill};
use libfuzzer_sys::fuzz_target;
use vmm_sys_util::tempfile::TempFile;

/// The content of an item, without a name. One file for all runs: nothing writes to it.
static CONTENT: LazyLock<File> = LazyLock::new(|| {
    let mut file = TempFile::new().expect("a temporary file for an item").into_file();
    fill(&mut file).expect("room for the item");
    file
});

fuzz_target!(|program: &[u8]| {
    exercise(program, &CONTENT).expect("the host can run the device");
});
