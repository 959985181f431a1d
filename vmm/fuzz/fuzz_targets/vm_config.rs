// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a configuration: a file, a request's body, a command line. What is valid prints as JSON that means the same.
//! The stable-toolchain twin is in `vmm/src/config/exercise.rs`.
#![no_main]

use flatboot::config::exercise::exercise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    exercise(bytes);
});
