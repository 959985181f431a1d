// SPDX-License-Identifier: Apache-2.0
//! What a guest is kept at work with, to see how fast its devices and its kernel are: the one list of workloads.
//!
//! Each gives one rate, of which more is better. The guest's init does them one after another (guest-init/work.rs), in the userland
//! of `debian.sh --work`; the host's end is `observe/peer.rs`.

use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::once::each_once;

/// Something for a guest to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name on the command line and in results.
    pub name: &'static str,
    /// What it is, in a few words.
    pub meaning: &'static str,
    /// What is counted.
    pub unit: Unit,
    /// What is done.
    pub task: Task,
}

/// What is counted in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Requests, answers, or what else is done again and again.
    Times,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// iperf3, with so many TCP streams.
    Stream {
        /// The interface.
        link: &'static Link,
        /// How many.
        streams: u8,
        /// Whether the host sends.
        from_host: bool,
    },
    /// One byte to the host by TCP and back, again and again.
    Echo(&'static Link),
    /// fio on the data disk.
    Disk {
        /// fio's `--rw`.
        pattern: &'static str,
        /// fio's `--bs`.
        block: &'static str,
        /// fio's `--iodepth`.
        depth: u8,
        /// fio's `--fdatasync`: a flush after so many writes, none for 0.
        flush: u8,
    },
    /// So many percent of all memory written to, a word a page, on all processors at once.
    Touch(u8),
    /// A byte handed so often between two threads on two processors; two for each two processors.
    Turns(u32),
    /// So many programs started and ended on each processor.
    Programs(u32),
    /// The data disk read by so many threads, four times as much as there is memory.
    Readers(u8),
    /// One of stress-ng's stressors, with what it is told; 0 of it: as many as there are processors.
    Stress(&'static str),
}

/// What a workload is compared with: the same VM, but for this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yardstick {
    /// QEMU runs it: what devices get done.
    Qemu,
    /// It runs stock 6.12: what the kernel gets done.
    Stock,
}

/// One of the guest's two interfaces, each on a tap of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Link {
    /// The host's end.
    pub tap: &'static str,
    /// The guest's address of it, by which it is told from the other.
    pub mac: &'static str,
    /// Whether the host's kernel moves the frames.
    pub vhost: bool,
    /// The host's address. Those for measuring networks (RFC 2544): nobody else has them.
    pub host: Ipv4Addr,
    /// The guest's.
    pub guest: Ipv4Addr,
}

/// The VMM itself moves the frames.
const USER: Link = Link {
    tap: "flatboot-work0",
    mac: "52:54:00:12:34:50",
    vhost: false,
    host: Ipv4Addr::new(198, 18, 250, 1),
    guest: Ipv4Addr::new(198, 18, 250, 2),
};

/// The kernel's vhost-net moves them.
const KERNEL: Link = Link {
    tap: "flatboot-work1",
    mac: "52:54:00:12:34:51",
    vhost: true,
    host: Ipv4Addr::new(198, 18, 251, 1),
    guest: Ipv4Addr::new(198, 18, 251, 2),
};

/// Both, in the order in which a VMM gets them.
pub const LINKS: [&Link; 2] = [&USER, &KERNEL];

/// The port at which the host sends back each byte.
pub const ECHO_PORT: u16 = 7007;
/// Serial number of the disk with the userland …
pub const ROOT_DISK: &str = "work-root";
/// … and of that which is written to.
pub const DATA_DISK: &str = "work-data";
/// Its file, in the host's memory: what is measured is the way there.
pub const DATA_FILE: &str = "/dev/shm/flatboot-work-data";
/// How much at its beginning is there, and is read and written by fio …
pub const DATA_MIB: u64 = 256;
/// … of the whole size. The rest is a hole, which takes the host no memory while it is read.
pub const DISK_MIB: u64 = 16 << 10;
/// So many times a guest's memory is read by [`Task::Readers`].
pub const READ_TIMES: u64 = 4;
/// How long each takes that is not a number of times; a little longer, until it has begun and ended.
pub const SECONDS: u64 = 3;
/// The guest's check that does one, and the field of its report with what came of it.
pub const CHECK: &str = "work";
/// See [`CHECK`].
pub const RATE: &str = "rate";

/// All workloads. A new one is a line here.
pub const WORKLOADS: &[Workload] = &[
    // What is touched for the first time is so once a boot: before everything else.
    kernel("touch", "new memory written to, on all processors at once", Unit::Bytes, Task::Touch(70)),
    kernel("turns", "a byte between threads on two processors", Unit::Times, Task::Turns(10_000)),
    kernel("programs", "programs that come and go", Unit::Times, Task::Programs(100)),
    kernel("readers-1", "four times the memory read by one thread", Unit::Bytes, Task::Readers(1)),
    kernel("readers-16", "four times the memory read by sixteen", Unit::Bytes, Task::Readers(16)),
    kernel("fork", "processes made and ended, by stress-ng", Unit::Times, Task::Stress("--fork 0")),
    kernel("fault", "page faults, by stress-ng", Unit::Times, Task::Stress("--fault 0")),
    kernel(
        "mmap",
        "memory mapped, protected and unmapped, by stress-ng",
        Unit::Times,
        Task::Stress("--mmap 0 --mmap-bytes 4m"),
    ),
    kernel("switch", "messages between two processes, by stress-ng", Unit::Times, Task::Stress("--switch 0")),
    stream("tx-1", "one TCP stream to the host", &USER, 1, false),
    stream("tx-4", "four TCP streams to the host", &USER, 4, false),
    stream("rx-1", "one TCP stream from the host", &USER, 1, true),
    stream("rx-4", "four TCP streams from the host", &USER, 4, true),
    echo("echo", "a byte to the host and back", &USER),
    stream("vhost-tx-1", "one TCP stream to the host, by vhost-net", &KERNEL, 1, false),
    stream("vhost-tx-4", "four TCP streams to the host, by vhost-net", &KERNEL, 4, false),
    stream("vhost-rx-1", "one TCP stream from the host, by vhost-net", &KERNEL, 1, true),
    stream("vhost-rx-4", "four TCP streams from the host, by vhost-net", &KERNEL, 4, true),
    echo("vhost-echo", "a byte to the host and back, by vhost-net", &KERNEL),
    disk("read-1", "4 KiB read at random, one at a time", Unit::Times, ("randread", "4k", 1), 0),
    disk("read-32", "4 KiB read at random, 32 at a time", Unit::Times, ("randread", "4k", 32), 0),
    disk("write-1", "4 KiB written at random, one at a time", Unit::Times, ("randwrite", "4k", 1), 0),
    disk("write-32", "4 KiB written at random, 32 at a time", Unit::Times, ("randwrite", "4k", 32), 0),
    disk("flush", "4 KiB written at random, each flushed", Unit::Times, ("randwrite", "4k", 1), 1),
    disk("read-seq", "1 MiB read in order", Unit::Bytes, ("read", "1m", 1), 0),
    disk("write-seq", "1 MiB written in order", Unit::Bytes, ("write", "1m", 1), 0),
];

const fn stream(
    name: &'static str,
    meaning: &'static str,
    link: &'static Link,
    streams: u8,
    from_host: bool,
) -> Workload {
    Workload { name, meaning, unit: Unit::Bytes, task: Task::Stream { link, streams, from_host } }
}

const fn echo(name: &'static str, meaning: &'static str, link: &'static Link) -> Workload {
    Workload { name, meaning, unit: Unit::Times, task: Task::Echo(link) }
}

const fn disk(
    name: &'static str,
    meaning: &'static str,
    unit: Unit,
    (pattern, block, depth): (&'static str, &'static str, u8),
    flush: u8,
) -> Workload {
    Workload { name, meaning, unit, task: Task::Disk { pattern, block, depth, flush } }
}

const fn kernel(name: &'static str, meaning: &'static str, unit: Unit, task: Task) -> Workload {
    Workload { name, meaning, unit, task }
}

impl Workload {
    /// The workload called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// What it is a part of: `net`, `vhost`, `disk` or `kernel`.
    #[must_use]
    pub fn group(&self) -> &'static str {
        match self.task {
            Task::Stream { link, .. } | Task::Echo(link) if link.vhost => "vhost",
            Task::Stream { .. } | Task::Echo(_) => "net",
            Task::Disk { .. } => "disk",
            Task::Touch(_) | Task::Turns(_) | Task::Programs(_) | Task::Readers(_) | Task::Stress(_) => "kernel",
        }
    }

    /// What it is compared with.
    #[must_use]
    pub fn yardstick(&self) -> Yardstick {
        if self.group() == "kernel" { Yardstick::Stock } else { Yardstick::Qemu }
    }

    /// All workloads as docs/measuring.md shows them.
    #[must_use]
    pub fn table() -> String {
        let row =
            |one: &Self| format!("| `{}` | `{}` | {} | {} |\n", one.name, one.group(), one.meaning, one.unit.name());
        "| Workload | Group | What is done | Counted in a second |\n|---|---|---|---|\n".to_owned()
            + &WORKLOADS.iter().map(row).collect::<String>()
    }
}

impl Unit {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Times => "times",
        }
    }
}

/// A value of `--work`: one workload, or all of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Works(Vec<&'static Workload>);

impl FromStr for Works {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_meant = |one: &&Workload| text == "all" || one.name == text || one.group() == text;
        let meant: Vec<_> = WORKLOADS.iter().filter(is_meant).collect();
        if meant.is_empty() {
            let names: Vec<_> = WORKLOADS.iter().map(|one| one.name).collect();
            return Err(format!("{text:?}: must be one of {}, or net, vhost, disk, kernel or all", names.join(", ")));
        }
        Ok(Self(meant))
    }
}

impl Works {
    /// The workloads that `list` means, in its order, each once.
    #[must_use]
    pub fn workloads(list: &[Self]) -> Vec<&'static Workload> {
        each_once(list.iter().flat_map(|works| works.0.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_groups_choose() {
        let chosen = |words: &[&str]| -> Vec<_> {
            let works: Vec<Works> = words.iter().map(|word| word.parse().unwrap()).collect();
            Works::workloads(&works).iter().map(|one| one.name).collect()
        };
        assert_eq!(chosen(&["flush", "net", "tx-4"]), ["flush", "tx-1", "tx-4", "rx-1", "rx-4", "echo"]);
        assert_eq!(chosen(&["all"]).len(), WORKLOADS.len());
        for wrong in ["", "tx", "Net", "tx-1,"] {
            assert!(wrong.parse::<Works>().is_err_and(|said| said.contains("must be one of touch, ")), "{wrong}");
        }
    }

    #[test]
    fn names_are_unique() {
        for (index, one) in WORKLOADS.iter().enumerate() {
            let others = WORKLOADS.iter().skip(index + 1);
            assert!(others.clone().all(|other| other.name != one.name), "{} is there twice", one.name);
            assert!(!["net", "vhost", "disk", "kernel", "all"].contains(&one.name), "{} is a group", one.name);
        }
    }
}
