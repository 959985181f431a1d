// SPDX-License-Identifier: Apache-2.0
//! The ways to fill the memmap, and what each promises.

use flatboot_bench::modes::MODES;
use libtest_mimic::Failed;

use crate::vm::lab::require;

/// A value of `memmap_init=`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// Its name, which is the value.
    pub(super) name: &'static str,
    /// When struct pages are set up.
    pub(super) filled: Filled,
}

/// When struct pages are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// All of them before init starts.
    BeforeInit,
    /// All of them in the end; init does not wait.
    InBackground,
    /// Only those of sections that the allocator came to need.
    WhenNeeded,
}

/// What the others are compared with: it is what mainline does.
pub(super) const REFERENCE: Mode = Mode { name: "parallel", filled: Filled::BeforeInit };

/// All of them, the reference first.
pub(super) const ALL: &[Mode] = &[
    REFERENCE,
    Mode { name: "serial", filled: Filled::BeforeInit },
    Mode { name: "async", filled: Filled::InBackground },
    Mode { name: "ondemand", filled: Filled::WhenNeeded },
];

impl Mode {
    /// Whether init waits for all struct pages.
    pub(super) fn waits(&self) -> bool {
        self.filled == Filled::BeforeInit
    }

    /// The check that reports `memmap_nodes` when no more will be filled.
    pub(super) fn last_check(&self) -> &'static str {
        if self.filled == Filled::WhenNeeded { "memmap" } else { "filled=120" }
    }
}

/// A mode that sweeps know is tested here.
pub(super) fn none_is_forgotten() -> Result<(), Failed> {
    let forgotten: Vec<_> = MODES
        .iter()
        .filter(|mode| !mode.is_stock())
        .map(|mode| mode.name)
        .filter(|name| ALL.iter().all(|mode| mode.name != *name))
        .collect();
    require(forgotten.is_empty(), || format!("no scenario runs with memmap_init= {forgotten:?}"))
}
