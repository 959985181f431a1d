// SPDX-License-Identifier: Apache-2.0
//! The guests. They are small, and mostly take huge pages: an emulated host serves some ten thousand page faults a second.

use super::modes::{self, Mode};

/// One guest, to be booted in each mode.
pub(super) struct Scenario {
    /// Part of the test's name.
    pub(super) name: &'static str,
    /// Number of vCPUs.
    pub(super) cpus: u8,
    /// The value of `--memory size=`.
    pub(super) memory: &'static str,
    /// More for the kernel command line.
    pub(super) cmdline: &'static str,
    /// What init checks first, in this order.
    pub(super) checks: &'static str,
    /// Whether `serial` may behave differently from `parallel` here.
    pub(super) serial_too: bool,
    /// Whether memory in the end is the same in all modes: what is taken from the memmap itself is not.
    pub(super) same_memory: bool,
    /// Whether memory is asked for before the background work can be over.
    pub(super) races: bool,
    /// An option that the guest kernel must have.
    pub(super) needs: Option<&'static str>,
}

/// What most of them have.
const PLAIN: Scenario = Scenario {
    name: "",
    cpus: 2,
    memory: "768M",
    cmdline: "",
    checks: "",
    serial_too: false,
    same_memory: true,
    races: false,
    needs: None,
};

pub(super) const SCENARIOS: &[Scenario] = &[
    // The first thing that init does is to take all there is, in small pages.
    Scenario { name: "all_at_once", checks: "hog=95%", serial_too: true, ..PLAIN },
    // First all that looks at every page, then all memory.
    Scenario { name: "walked_then_hogged", checks: "walk,thp,hog=95%,walk", serial_too: true, ..PLAIN },
    // Atomic allocations, programs, drops of caches, compaction and walks, all while memory is taken.
    Scenario { name: "storm", checks: "thp,storm=70%", ..PLAIN },
    // So much that the background work is not over when init starts to take it.
    Scenario { name: "race", memory: "32G", checks: "thp,hog=768M,storm=256M", races: true, ..PLAIN },
    // Huge pages: pools from the command line, a pool of most of memory while it runs.
    Scenario {
        name: "huge_pages",
        memory: "8G",
        cmdline: "hugepages=256 hugepagesz=1G hugepages=1",
        checks: "hugepages=2048:256,hugepages=1048576:1,hugetlb=80%,thp,hog=256M",
        ..PLAIN
    },
    // The kernel takes back the memmap of huge pages, so the pages under the memmap must be known, too. When it gives that back,
    // 6.12.117 leaves copies of the head in it, with the series or without; with init_on_alloc it looks, and complains.
    Scenario {
        name: "huge_pages_without_memmap",
        memory: "4G",
        cmdline: "hugetlb_free_vmemmap=on hugepages=256 init_on_alloc=0",
        checks: "hugepages=2048:256,hugetlb=75%,thp,hog=256M",
        same_memory: false,
        ..PLAIN
    },
    // One processor, which the background work has to itself only when nothing else runs. A cut that is no whole section.
    Scenario {
        name: "one_processor_cut_memory",
        cpus: 1,
        cmdline: "mem=0x119600000",
        memory: "1G",
        checks: "thp,hog=95%,walk",
        ..PLAIN
    },
    // Holes at the end of a section and inside one, movable memory, and a log buffer where the memmap's arena ends.
    Scenario {
        name: "holes_and_movable",
        memory: "1G",
        cmdline: "memmap=64K$0x107ff0000 memmap=3M$0x109000000 movablecore=256M log_buf_len=4M",
        checks: "walk,thp,hog=95%",
        ..PLAIN
    },
    // More vCPUs than processors by far, little for the kernel itself.
    Scenario { name: "many_processors", cpus: 16, cmdline: "kernelcore=256M", checks: "thp,hog=90%", ..PLAIN },
    Scenario { name: "too_many_processors", cpus: 64, memory: "8G", checks: "thp,hog=90%", ..PLAIN },
    Scenario { name: "nodes", cmdline: "numa=fake=2", checks: "hog=25%,walk", needs: Some("CONFIG_NUMA_EMU"), ..PLAIN },
    Scenario { name: "contiguous", cmdline: "cma=160M", checks: "thp,hog=90%", needs: Some("CONFIG_CMA"), ..PLAIN },
    Scenario {
        name: "crash_kernel",
        cmdline: "crashkernel=96M",
        checks: "thp,hog=90%",
        needs: Some("CONFIG_CRASH_RESERVE"),
        ..PLAIN
    },
];

impl Scenario {
    /// The modes to boot it in, the reference first.
    pub(super) fn modes(&self) -> impl Iterator<Item = &'static Mode> {
        modes::ALL.iter().filter(|mode| self.serial_too || mode.name != "serial")
    }
}
