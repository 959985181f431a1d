// SPDX-License-Identifier: Apache-2.0
//! How often something is done again that must be the same each time.

use std::env;
use std::fmt::Debug;

use libtest_mimic::Failed;

/// What `FLATBOOT_TIMES` says, which `make repeat` sets; else `default`, which takes seconds.
pub(crate) fn times(default: u32) -> Result<u32, Failed> {
    let Ok(text) = env::var("FLATBOOT_TIMES") else { return Ok(default) };
    text.parse().map_err(|_| format!("FLATBOOT_TIMES={text}: must be a number").into())
}

/// Says what `make repeat` is run for: what there was at the beginning and at the end of `times` times.
pub(crate) fn tell(what: &str, times: u32, before: &impl Debug, after: &impl Debug) {
    if env::var_os("FLATBOOT_TIMES").is_some() {
        eprintln!("{what}, {times} times: {before:?} at first, {after:?} at last");
    }
}
