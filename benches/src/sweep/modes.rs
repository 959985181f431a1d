// SPDX-License-Identifier: Apache-2.0
//! How the guest kernel fills the memmap: the one list of modes.

/// A value of the guest kernel's `memmap_init=`.
#[derive(Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its name, which is the value.
    pub name: &'static str,
    /// What it does, in a few words.
    pub meaning: &'static str,
    /// Whether it uses as many threads as `memmap_init_threads=` allows.
    pub threads: bool,
}

/// All modes, slowest first. A new one is a line here.
pub const MODES: &[Mode] = &[
    Mode { name: "serial", meaning: "one thread fills the memmap, boot waits", threads: false },
    Mode { name: "parallel", meaning: "all vCPUs fill the memmap, boot waits", threads: true },
];

impl Mode {
    /// The mode called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|mode| mode.name == name)
    }

    /// What chooses it on the kernel command line, with a cap on its threads if one is wanted.
    #[must_use]
    pub fn cmdline(&self, threads: Option<&str>) -> String {
        let cap = threads.map(|threads| format!(" memmap_init_threads={threads}")).unwrap_or_default();
        format!("memmap_init={}{cap}", self.name)
    }
}
