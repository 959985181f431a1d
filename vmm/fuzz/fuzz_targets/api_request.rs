// SPDX-License-Identifier: Apache-2.0
//! Any client, against the control API: HTTP, routes and bodies. The stable-toolchain twin is in `vmm/src/api/exercise.rs`.
#![no_main]

use flatboot::api::exercise::exercise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    exercise(bytes).expect("the host has a clock");
});
