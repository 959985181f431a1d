// SPDX-License-Identifier: Apache-2.0
//! How the guest kernel fills the memmap: the one list of modes.

/// A value of the guest kernel's `memmap_init=`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its name, which is the value.
    pub name: &'static str,
    /// What it does, in a few words.
    pub meaning: &'static str,
}

/// All modes, slowest first. A new one is a line here.
pub const MODES: &[Mode] = &[
    Mode { name: "serial", meaning: "one thread fills the memmap, boot waits" },
    Mode { name: "parallel", meaning: "all vCPUs fill the memmap, boot waits" },
];

impl Mode {
    /// The mode called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|mode| mode.name == name)
    }

    /// What chooses it on the kernel command line.
    #[must_use]
    pub fn cmdline(&self) -> String {
        format!("memmap_init={}", self.name)
    }
}
