// SPDX-License-Identifier: Apache-2.0
//! Any bytes as the state of a snapshot: its file, what is in it behind its checksum, and devices that go on from it. The
//! stable-toolchain twin is in `vmm/src/vmm/exercise.rs`.
#![no_main]

use std::fs::File;
use std::sync::LazyLock;

use flatboot::vmm::exercise::exercise;
use libfuzzer_sys::fuzz_target;
use vmm_sys_util::tempfile::TempFile;

/// Eight sectors, without a name. One file for all runs: what a run leaves on the disk does not change what the next one
/// may do.
static DISK: LazyLock<File> = LazyLock::new(|| {
    let disk = TempFile::new().expect("a temporary file for the disk").into_file();
    disk.set_len(8 * 512).expect("room for the disk");
    disk
});

fuzz_target!(|bytes: &[u8]| {
    exercise(bytes, &DISK).expect("the host can run devices");
});
