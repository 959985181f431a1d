// SPDX-License-Identifier: Apache-2.0
//! Whether the host has the memory that a VM asks for beforehand: what it has not would end the VM later, by a signal.
//!
//! Ordinary memory that is backed on first touch is overcommitted on purpose, and not looked at. Control groups of version 1 are
//! not read: there, a limit shows when memory is backed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::choice::Prefault;
use super::pages::HostPages;
use super::plan::MemoryPlan;
use super::range::GpaRange;
use super::size::Size;
use super::zone::Slot;
use crate::field::Field;

const HUGEPAGES: Field = Field::of("memory", "hugepages");
const SHARED: Field = Field::of("memory", "shared");
const HOST_NODE: Field = Field::of("memory.zones", "host_numa_node");

/// The host lacks memory of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's message is its documentation, and its fields are what the message names"
)]
pub enum HostError {
    #[error("{HUGEPAGES}=on: this host has no pages of {page:#}: hugepage_size must be {there}")]
    NoPool { page: Size, there: String },
    #[error(
        "{HUGEPAGES}=on: needs {needed} free pages of {page:#}, the host has {free}: must be at most that, or more \
         reserved in /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages",
        kib = .page.0 >> 10
    )]
    PoolTooSmall { page: Size, needed: u64, free: u64 },
    #[error(
        "{HUGEPAGES}=on: needs {needed} of {page:#} pages, the control group {group} has {room} left: must be at most \
         that, or its hugetlb limit be raised"
    )]
    HugeLimit { page: Size, needed: Size, room: Size, group: String },
    #[error("{}: backs {needed}, this host has {room} to give: must be at most that", .mode.asked())]
    Memory { mode: Prefault, needed: Size, room: Size },
    #[error("{}: backs {needed}, the control group {group} has {room} left: must be at most that", .mode.asked())]
    Limit { mode: Prefault, needed: Size, room: Size, group: String },
    #[error("{HOST_NODE}={node}: this host has no node {node} with memory: must be one of {there}")]
    NoNode { node: u16, there: String },
    #[error(
        "{HOST_NODE}={node}: needs {needed} free pages of {page:#}, this node has {free}: must be at most that, or \
         more reserved in /sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages",
        kib = .page.0 >> 10
    )]
    NodePoolTooSmall { node: u16, page: Size, needed: u64, free: u64 },
    #[error(
        "{}: backs {needed} of node {node} of this host, which has {room} to give: must be at most that",
        .mode.asked()
    )]
    NodeMemory { mode: Prefault, node: u16, needed: Size, room: Size },
    #[error(
        "{SHARED}=on: this host does not overcommit memory (vm.overcommit_memory is 2), so a touch could fail: must be \
         with prefault=on"
    )]
    Strict,
}

/// Where Linux says what the host has.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// This host.
    #[must_use]
    pub fn this() -> Self {
        Self { root: "/".into() }
    }

    /// Checks that this host has what mapping and backing memory as in `plan` takes.
    ///
    /// What it does not say is taken for granted: mapping and backing themselves have the last word.
    pub fn check(&self, plan: &MemoryPlan) -> Result<(), HostError> {
        let (slots, mode) = (plan.slots(), plan.input().prefault);
        self.check_nodes(plan)?;
        for pages in [HostPages::Huge2M, HostPages::Huge1G] {
            let lengths = slots.iter().filter(|slot| slot.backing.pages == pages).map(|slot| slot.range.length());
            let needed = lengths.map(|length| length.div_ceil(pages.bytes())).sum();
            if needed > 0 {
                self.check_pool(needed, pages)?;
            }
        }
        let ordinary = || slots.iter().filter(|slot| !slot.backing.pages.is_huge());
        let shared = ordinary().any(|slot| slot.backing.shared);
        if shared && mode != Prefault::All && self.number("proc/sys/vm/overcommit_memory") == Some(2) {
            return Err(HostError::Strict);
        }
        self.check_memory(backed(ordinary(), plan), mode)
    }

    /// What is bound to a node finds no memory elsewhere.
    fn check_nodes(&self, plan: &MemoryPlan) -> Result<(), HostError> {
        let (slots, mode) = (plan.slots(), plan.input().prefault);
        let nodes: BTreeSet<_> = slots.iter().filter_map(|slot| slot.backing.host_node).collect();
        let there = fs::read_to_string(self.root.join("sys/devices/system/node/has_memory"));
        for node in nodes {
            if let Ok(there) = there.as_deref().map(str::trim)
                && !is_listed(there, node)
            {
                return Err(HostError::NoNode { node, there: there.to_owned() });
            }
            let bound = |pages: HostPages| {
                slots.iter().filter(move |slot| slot.backing.host_node == Some(node) && slot.backing.pages == pages)
            };
            for pages in [HostPages::Huge2M, HostPages::Huge1G] {
                let needed = bound(pages).map(|slot| slot.range.length().div_ceil(pages.bytes())).sum();
                let (page, kib) = (Size(pages.bytes()), pages.bytes() >> 10);
                let pool = format!("sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/free_hugepages");
                let free = self.number(pool).map(|free| free.saturating_add(self.more_pages(pages.bytes())));
                if let Some(free) = free.filter(|free| *free < needed) {
                    return Err(HostError::NodePoolTooSmall { node, page, needed, free });
                }
            }
            let needed = Size(backed(bound(HostPages::Base), plan));
            if let Some(room) = self.available_on(node).filter(|room| *room < needed.0 && needed.0 > 0) {
                return Err(HostError::NodeMemory { mode, node, needed, room: whole_mib(room) });
            }
        }
        Ok(())
    }

    /// Mapping reserves the pages, but a control group's limit counts only when they are touched.
    fn check_pool(&self, needed: u64, pages: HostPages) -> Result<(), HostError> {
        let page = Size(pages.bytes());
        let pools = self.pools();
        if !pools.is_empty() && !pools.contains(&page.0) {
            let there: Vec<_> = pools.iter().map(|page| format!("{:#}", Size(*page))).collect();
            return Err(HostError::NoPool { page, there: there.join(" or ") });
        }
        if let Some(free) = self.free_pages(page.0).filter(|free| *free < needed) {
            return Err(HostError::PoolTooSmall { page, needed, free });
        }
        let file = |group: &Path, what: &str| number(&group.join(format!("hugetlb.{}B.{what}", unit(page.0))));
        let room = |group: &Path| Some(file(group, "max")?.saturating_sub(file(group, "current")?));
        match self.least_room(room) {
            Some((room, group)) if room < needed * page.0 => {
                Err(HostError::HugeLimit { page, needed: Size(needed * page.0), room: Size(room), group })
            }
            _ => Ok(()),
        }
    }

    fn check_memory(&self, needed: u64, mode: Prefault) -> Result<(), HostError> {
        if needed == 0 {
            return Ok(());
        }
        let needed = Size(needed);
        if let Some(room) = self.available().filter(|room| *room < needed.0) {
            return Err(HostError::Memory { mode, needed, room: whole_mib(room) });
        }
        match self.least_room(room_of) {
            Some((room, group)) if room < needed.0 => {
                Err(HostError::Limit { mode, needed, room: whole_mib(room), group })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of each size of huge pages, smallest first; none if the host does not say.
    fn pools(&self) -> Vec<u64> {
        let names = fs::read_dir(self.root.join("sys/kernel/mm/hugepages")).into_iter().flatten().flatten();
        let sizes = names.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            kib.checked_mul(1 << 10)
        });
        let mut sizes: Vec<_> = sizes.collect();
        sizes.sort_unstable();
        sizes
    }

    /// Pages of `page` bytes that may still be reserved: free and promised to nobody, or yet to be made.
    fn free_pages(&self, page: u64) -> Option<u64> {
        let pool = PathBuf::from(format!("sys/kernel/mm/hugepages/hugepages-{}kB", page >> 10));
        let number = |name: &str| self.number(pool.join(name));
        let free = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
        Some(free.saturating_add(self.more_pages(page)))
    }

    /// Huge pages of `page` bytes that the host would make besides.
    fn more_pages(&self, page: u64) -> u64 {
        let pool = PathBuf::from(format!("sys/kernel/mm/hugepages/hugepages-{}kB", page >> 10));
        let number = |name: &str| self.number(pool.join(name)).unwrap_or(0);
        number("nr_overcommit_hugepages").saturating_sub(number("surplus_hugepages"))
    }

    /// Bytes that programs can still get without taking them from others, by Linux's own estimate; swap included.
    fn available(&self) -> Option<u64> {
        let meminfo = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let available = field(&meminfo, "MemAvailable:")?;
        Some((available + field(&meminfo, "SwapFree:").unwrap_or(0)) << 10)
    }

    /// The same of one node, without swap.
    fn available_on(&self, node: u16) -> Option<u64> {
        let meminfo = self.root.join(format!("sys/devices/system/node/node{node}/meminfo"));
        let meminfo = fs::read_to_string(meminfo).ok()?;
        let prefix = format!("Node {node} ");
        let lines: String =
            meminfo.lines().filter_map(|line| line.strip_prefix(&prefix)).flat_map(|line| [line, "\n"]).collect();
        let cached = field(&lines, "Active(file):").unwrap_or(0) + field(&lines, "Inactive(file):").unwrap_or(0);
        Some((field(&lines, "MemFree:")? + cached) << 10)
    }

    /// The least of what `room` says of this process's control group and those above it, and whose it is.
    fn least_room(&self, room: impl Fn(&Path) -> Option<u64>) -> Option<(u64, String)> {
        let (mount, group) = self.control_group()?;
        let groups = group.ancestors().map(Path::to_owned);
        let rooms = groups.filter_map(|group| {
            let below = group.strip_prefix("/").unwrap_or(&group);
            Some((room(&mount.join(below))?, group.display().to_string()))
        });
        rooms.min()
    }

    /// Where control groups (version 2) are mounted, and the path of this process's in there.
    fn control_group(&self) -> Option<(PathBuf, PathBuf)> {
        let groups = fs::read_to_string(self.root.join("proc/self/cgroup")).ok()?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        let mounts = fs::read_to_string(self.root.join("proc/self/mountinfo")).ok()?;
        // proc(5): the file system's type is the first word after the dash, the mount point the fifth of all.
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
        Some((self.root.join(mount.trim_start_matches('/')), group.into()))
    }

    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        number(&self.root.join(path))
    }
}

/// Bytes of `slots` that are backed beforehand.
fn backed<'a>(slots: impl Iterator<Item = &'a Slot>, plan: &MemoryPlan) -> u64 {
    let common = |slot: &Slot, range: &GpaRange| {
        let (start, end) = (slot.range.start().max(range.start()), slot.range.end().min(range.end()));
        end.saturating_sub(start)
    };
    slots.map(|slot| plan.backing().prefault.iter().map(|range| common(slot, range)).sum::<u64>()).sum()
}

/// Whether `number` is in a list as Linux writes it: `0-1,3`.
fn is_listed(text: &str, number: u16) -> bool {
    let ranges = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u16>().ok()?..=last.parse().ok()?)
    });
    ranges.into_iter().any(|range| range.contains(&number))
}

/// Bytes that the control group `group` may still take; what its files cache can be given back.
fn room_of(group: &Path) -> Option<u64> {
    let max = number(&group.join("memory.max"))?;
    let current = number(&group.join("memory.current"))?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = field(&stat, "inactive_file").unwrap_or(0) + field(&stat, "active_file").unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(cached)))
}

/// The number in a file; "max" and whatever else is none.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(' ')))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// A size as the names of hugetlb's control files have it: `2M`, `1G`.
fn unit(bytes: u64) -> String {
    format!("{:#}", Size(bytes))
}

const fn whole_mib(bytes: u64) -> Size {
    Size(bytes >> 20 << 20)
}

#[cfg(test)]
mod tests {
    use super::super::{AddressWidth, Backing, MemorySize, PayloadKind, PlanInput, Zone};
    use super::*;
    use tempfile::TempDir;

    const MIB: u64 = 1 << 20;

    /// A host whose files are those of a directory.
    struct Fake(TempDir);

    impl Fake {
        fn new(files: &[(&str, &str)]) -> Self {
            let fake = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = fake.0.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            fake
        }

        /// What it says to a VM of 1 GiB, half of it below 4 GiB, or to what `change` makes of that.
        fn says(&self, change: impl FnOnce(&mut PlanInput)) -> String {
            let mut input = PlanInput::new(MemorySize::try_from(1024 * MIB).unwrap());
            change(&mut input);
            let plan = MemoryPlan::new(&input, PayloadKind::Firmware, AddressWidth::reported(46)).unwrap();
            let host = Host { root: self.0.path().to_owned() };
            host.check(&plan).err().map_or_else(String::new, |error| error.to_string())
        }

        fn huge(&self, pages: HostPages) -> String {
            self.says(|input| input.zones[0].backing.pages = pages)
        }

        fn prefault(&self, mode: Prefault, shared: bool) -> String {
            self.says(|input| (input.prefault, input.zones[0].backing.shared) = (mode, shared))
        }

        /// The half above 4 GiB is bound to `node`, and all of it is backed.
        fn bound(&self, node: u16, pages: HostPages) -> String {
            let zone = |node, backing| Zone { size: 512 * MIB, node, backing };
            let bound = Backing { pages, host_node: Some(node), shared: false };
            let zones = vec![zone(0, Backing::default()), zone(1, bound)];
            self.says(|input| (input.prefault, input.zones) = (Prefault::All, zones))
        }
    }

    fn pool(free: &str, promised: &str, more: &str) -> Vec<(String, String)> {
        let name = |name: &str| format!("sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
        [
            ("free_hugepages", free),
            ("resv_hugepages", promised),
            ("nr_overcommit_hugepages", more),
            ("surplus_hugepages", "0"),
        ]
        .map(|(file, number)| (name(file), format!("{number}\n")))
        .to_vec()
    }

    fn fake(files: &[(String, String)]) -> Fake {
        Fake::new(&files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect::<Vec<_>>())
    }

    #[test]
    fn a_pool_must_have_every_page() {
        for (free, promised, more, fits) in
            [("512", "0", "0", true), ("511", "0", "0", false), ("600", "100", "0", false), ("0", "0", "512", true)]
        {
            let said = fake(&pool(free, promised, more)).huge(HostPages::Huge2M);
            assert_eq!(said.is_empty(), fits, "{free} {promised} {more}: {said}");
        }
        assert_eq!(
            fake(&pool("600", "100", "0")).huge(HostPages::Huge2M),
            "memory.hugepages=on: needs 512 free pages of 2M, the host has 500: must be at most that, or more reserved in \
             /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        );
    }

    #[test]
    fn a_size_that_the_host_lacks_is_named_with_those_it_has() {
        assert_eq!(
            fake(&pool("512", "0", "0")).huge(HostPages::Huge1G),
            "memory.hugepages=on: this host has no pages of 1G: hugepage_size must be 2M"
        );
        assert_eq!(Fake::new(&[]).huge(HostPages::Huge1G), "", "it does not say, so mapping will");
    }

    #[test]
    fn a_node_must_be_there_and_have_what_is_bound_to_it() {
        let free = |kib: u64| {
            format!("Node 1 MemFree: {kib} kB\nNode 1 Active(file): 24 kB\nNode 1 Inactive(file): 1000 kB\n")
        };
        let host = |kib| {
            Fake::new(&[
                ("sys/devices/system/node/has_memory", "0-1,4\n"),
                ("sys/devices/system/node/node1/meminfo", &free(kib)),
                ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "255\n"),
                ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512\n"),
                ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "0\n"),
            ])
        };
        assert_eq!(host(511 << 10).bound(1, HostPages::Base), "");
        assert_eq!(host(0).bound(4, HostPages::Base), "", "it does not say how much there is");
        assert_eq!(
            host(510 << 10).bound(1, HostPages::Base),
            "memory.prefault=on: backs 512 MiB of node 1 of this host, which has 511 MiB to give: must be at most that"
        );
        for node in [2, 3, 5, 1023] {
            assert_eq!(
                host(1 << 20).bound(node, HostPages::Base),
                format!(
                    "memory.zones.host_numa_node={node}: this host has no node {node} with memory: must be one of 0-1,4"
                )
            );
        }
        assert_eq!(
            host(1 << 20).bound(1, HostPages::Huge2M),
            "memory.zones.host_numa_node=1: needs 256 free pages of 2M, this node has 255: must be at most that, or more reserved \
             in /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
        );
        assert_eq!(Fake::new(&[]).bound(7, HostPages::Base), "", "it does not say, so binding will");
    }

    #[test]
    fn a_control_group_limits_huge_pages() {
        let group = "sys/fs/cgroup/a/hugetlb.2MB";
        let limited = |max: &str| {
            let mut files = pool("512", "0", "0");
            let more = [
                ("proc/self/cgroup".to_owned(), "0::/a/b\n".to_owned()),
                (
                    "proc/self/mountinfo".to_owned(),
                    "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n".to_owned(),
                ),
                (format!("{group}.max"), max.to_owned()),
                (format!("{group}.current"), format!("{}\n", 2 * MIB)),
            ];
            files.extend(more);
            fake(&files).huge(HostPages::Huge2M)
        };
        assert_eq!(limited("max\n"), "");
        assert_eq!(limited(&(1026 * MIB).to_string()), "");
        assert_eq!(
            limited(&(1024 * MIB).to_string()),
            "memory.hugepages=on: needs 1 GiB of 2M pages, the control group /a has 1022 MiB left: must be at most that, or \
             its hugetlb limit be raised"
        );
    }

    #[test]
    fn what_is_backed_beforehand_must_be_there() {
        let meminfo = |available: u64, swap: u64| {
            format!("MemTotal: 9999999 kB\nMemAvailable: {available} kB\nSwapFree:   {swap} kB\n")
        };
        let said =
            |available, swap, mode| Fake::new(&[("proc/meminfo", &meminfo(available, swap))]).prefault(mode, false);
        assert_eq!(said(1 << 20, 0, Prefault::All), "");
        assert_eq!(said(1 << 19, 1 << 19, Prefault::All), "");
        assert_eq!(said(1, 0, Prefault::Off), "");
        assert_eq!(
            said((1 << 20) - 1, 0, Prefault::All),
            "memory.prefault=on: backs 1 GiB, this host has 1023 MiB to give: must be at most that"
        );
        assert!(said(1, 0, Prefault::Arenas).starts_with("study.prefault_arenas=on: backs 16 MiB, this host has 0 B "));
        assert_eq!(Fake::new(&[]).prefault(Prefault::All, false), "", "it does not say, so backing will");
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let said = |outer: u64, current: u64, cached: u64| {
            Fake::new(&[
                ("proc/self/cgroup", "1:name=systemd:/x\n0::/a/b\n"),
                ("proc/self/mountinfo", "31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.current", "0\n"),
                ("sys/fs/cgroup/a/memory.max", &format!("{}\n", outer * MIB)),
                ("sys/fs/cgroup/a/memory.current", &format!("{}\n", current * MIB)),
                ("sys/fs/cgroup/a/memory.stat", &format!("anon 1\ninactive_file {}\nactive_file 0\n", cached * MIB)),
            ])
            .prefault(Prefault::All, false)
        };
        assert_eq!(said(1124, 100, 0), "");
        assert_eq!(said(1124, 200, 100), "");
        assert_eq!(
            said(1124, 200, 99),
            "memory.prefault=on: backs 1 GiB, the control group /a has 1023 MiB left: must be at most that"
        );
    }

    #[test]
    fn a_strict_host_must_give_shared_memory_at_once() {
        let strict = |number| Fake::new(&[("proc/sys/vm/overcommit_memory", number)]);
        assert!(
            strict("2\n").prefault(Prefault::Off, true).starts_with("memory.shared=on: this host does not overcommit")
        );
        for (number, mode, shared) in
            [("2\n", Prefault::Off, false), ("2\n", Prefault::All, true), ("1\n", Prefault::Off, true)]
        {
            assert_eq!(strict(number).prefault(mode, shared), "", "{number} {mode:?} {shared}");
        }
    }
}
