// SPDX-License-Identifier: Apache-2.0
//! How the guest kernel fills the memmap: the one list of modes.

/// A way to fill the memmap: a value of `memmap_init=` of the patched kernel, or the kernel that does not know of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Mode {
    /// Its name, which is the value.
    pub name: &'static str,
    /// Whether it uses as many threads as `memmap_init_threads=` allows.
    pub threads: bool,
    /// Whether memory is still deferred when init starts.
    pub defers: bool,
    /// The kernel that is booted, as `guest-kernel/build.sh` calls it.
    pub kernel: &'static str,
}

/// The kernel with the whole series.
const PATCHED: &str = "guest";
/// The one without, but for the boot marks.
pub(crate) const STOCK: &str = "stock";

/// All modes, slowest first. A new one is a line here.
pub const MODES: &[Mode] = &[
    Mode { name: "serial", threads: false, defers: false, kernel: PATCHED },
    Mode { name: "stock", threads: false, defers: false, kernel: STOCK },
    Mode { name: "parallel", threads: true, defers: false, kernel: PATCHED },
    Mode { name: "async", threads: true, defers: true, kernel: PATCHED },
    Mode { name: "ondemand", threads: false, defers: true, kernel: PATCHED },
];

impl Mode {
    /// The mode called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|mode| mode.name == name)
    }

    /// What chooses it on the kernel command line, with a cap on its threads if one is wanted; empty for the stock kernel.
    #[must_use]
    pub fn cmdline(&self, threads: Option<&str>) -> String {
        if self.is_stock() {
            return String::new();
        }
        let cap = threads.map(|threads| format!(" memmap_init_threads={threads}")).unwrap_or_default();
        format!("memmap_init={}{cap}", self.name)
    }

    /// Whether it boots the kernel without the series.
    #[must_use]
    pub fn is_stock(&self) -> bool {
        self.kernel == STOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_patched_kernel_is_told_its_mode() {
        let cmdlines = ["async", "stock"].map(|name| Mode::named(name).map(|mode| mode.cmdline(Some("50%"))));
        assert_eq!(cmdlines, [Some("memmap_init=async memmap_init_threads=50%".to_owned()), Some(String::new())]);
    }
}
