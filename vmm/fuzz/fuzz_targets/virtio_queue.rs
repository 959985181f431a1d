// SPDX-License-Identifier: Apache-2.0
//! Any driver, against each device: registers, queues and requests.
#![no_main]

use std::fs::File;
use std::sync::LazyLock;

use flatboot::devices::virtio::exercise::exercise;
use libfuzzer_sys::fuzz_target;
use vmm_sys_util::tempfile::TempFile;

/// Eight sectors, without a name. One file for all runs: what a run leaves on the disk does not change what the next one
/// may do.
static DISK: LazyLock<File> = LazyLock::new(|| {
    let disk = TempFile::new().expect("a temporary file for the disk").into_file();
    disk.set_len(8 * 512).expect("room for the disk");
    disk
});

fuzz_target!(|program: &[u8]| {
    exercise(program, &DISK).expect("the host can run the device");
});
