// SPDX-License-Identifier: Apache-2.0
//! What host memory is asked for beforehand, as ranges of guest physical addresses.

use std::collections::HashSet;

use flatboot_handoff::SECTION_SIZE;
use serde::{Deserialize, Serialize};

use super::arenas::SECTION_MEMMAP;
use super::guest::HUGE_PAGE;
use super::plan::MemoryPlan;
use super::range::GpaRange;
use crate::field::{Field, Valued};
use crate::layout::{ABOVE_4G, PAGE_SIZE};

/// What a small guest's kernel takes of its memory until it starts init.
const FIRST_TAKEN: u64 = 8 << 20;
/// One byte in so many more, for hash tables.
const FIRST_TAKEN_SHARE: u64 = 4096;
/// Where they end.
const FIRST_TAKEN_MOST: u64 = 24 << 20;

/// What EDK2 works in at the top of low memory: 64 MiB and its page tables (`GetPeiMemoryCap()` in OvmfPkg/PlatformPei/MemDetect.c),
/// in whole huge pages.
const FIRMWARE_WORKS_IN: u64 = 72 << 20;

/// Where the host's transparent huge pages are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Switch", into = "Switch")]
pub enum Thp {
    /// Nowhere.
    Off,
    /// Where they pay: behind the kernel, the memmap's arenas, the memory that the guest's allocator has first, and all that
    /// is backed beforehand anyway.
    #[default]
    Early,
    /// Behind all memory: fewer page faults for a guest that uses it all, 2 MiB of the host's for each page touched alone.
    All,
}

/// What host memory is there before the guest runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prefault {
    /// None.
    #[default]
    Off,
    /// That of the memmap's arenas.
    Arenas,
    /// All of it.
    All,
}

/// That in JSON: what other VMMs have, too, is a switch there; the rest is a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Switch {
    Is(bool),
    Word(String),
}

impl Switch {
    /// What it says: on, off or the word.
    fn said(&self) -> &str {
        match self {
            Self::Is(true) => "on",
            Self::Is(false) => "off",
            Self::Word(word) => word,
        }
    }
}

impl From<Thp> for Switch {
    fn from(thp: Thp) -> Self {
        match thp {
            Thp::Off => Self::Is(false),
            Thp::Early => Self::Is(true),
            Thp::All => Self::Word("all".to_owned()),
        }
    }
}

impl TryFrom<Switch> for Thp {
    type Error = &'static str;

    fn try_from(switch: Switch) -> Result<Self, Self::Error> {
        match switch.said() {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::Early),
            "all" => Ok(Self::All),
            _ => Err("must be true, false or \"all\""),
        }
    }
}

impl Prefault {
    /// What asks for it.
    #[must_use]
    pub fn asked(self) -> Valued<&'static str> {
        match self {
            Self::Off => Field::of("memory", "prefault").is("off"),
            Self::All => Field::of("memory", "prefault").is("on"),
            Self::Arenas => Field::of("study", "prefault_arenas").is("on"),
        }
    }
}

/// What host memory is asked for beforehand. Each list is sorted as the guest's addresses are, but for the kernel, which
/// comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostBacking {
    /// Where transparent huge pages are asked for.
    pub thp: Vec<GpaRange>,
    /// What is backed before the guest runs, or the VM does not start.
    pub prefault: Vec<GpaRange>,
    /// What all vCPU threads back before the guest runs: what it touches first. Failure costs speed only.
    pub early: Vec<GpaRange>,
    /// What the secondary vCPUs' threads back next, while the boot CPU runs and they wait for its IPI. Failure costs speed only.
    pub ahead: Vec<GpaRange>,
}

impl HostBacking {
    /// What follows from a user's choices for the memory of `plan`; `kernel` is where the kernel goes, as far as that is known.
    #[must_use]
    pub fn new(plan: &MemoryPlan, kernel: Option<GpaRange>, thp: Thp, prefault: Prefault, early: bool) -> Self {
        // Host memory comes in pages, whatever the image's segments are.
        let kernel = kernel.map(whole_pages);
        let all = || plan.slots().iter().map(|slot| slot.range).collect();
        let thp = match thp {
            Thp::Off => Vec::new(),
            // What is all taken at once is taken in the fewest pieces.
            Thp::Early if prefault == Prefault::All => all(),
            Thp::Early => kernel.into_iter().chain(first_sections(plan)).chain(arenas(plan)).chain(top(plan)).collect(),
            Thp::All => all(),
        };
        let thp = without_pools(plan, thp);
        let ahead = match prefault {
            _ if !early => Vec::new(),
            Prefault::Off | Prefault::Arenas => first_taken(plan).chain(top(plan)).collect(),
            Prefault::All => Vec::new(),
        };
        let early = match prefault {
            _ if !early => Vec::new(),
            Prefault::Off => kernel.into_iter().chain(arenas(plan).map(first_section)).collect(),
            Prefault::Arenas => kernel.into_iter().collect(),
            Prefault::All => Vec::new(),
        };
        let prefault = match prefault {
            Prefault::Off => Vec::new(),
            Prefault::Arenas => arenas(plan).collect(),
            Prefault::All => all(),
        };
        Self { thp, prefault, early, ahead }
    }

    /// The same for a VM that starts with firmware: huge pages, if any are asked for, where that works, too. vCPU threads back
    /// nothing: firmware has all processors do that ahead of the kernel, and until then it is their company that would slow it down.
    #[must_use]
    pub fn with_firmware(mut self, plan: &MemoryPlan) -> Self {
        if !self.thp.is_empty() {
            let low = plan.ram().first().map(|low| low.end() - FIRMWARE_WORKS_IN.min(low.length())..low.end());
            self.thp.extend(without_pools(plan, low.map(GpaRange::from).into_iter().collect()));
        }
        self.early.clear();
        self.ahead.clear();
        self
    }
}

fn whole_pages(range: GpaRange) -> GpaRange {
    GpaRange::new(range.start() - range.start() % PAGE_SIZE, range.end().next_multiple_of(PAGE_SIZE))
}

/// What of `ranges` is not backed by a reserved pool, whose pages are huge already.
fn without_pools(plan: &MemoryPlan, ranges: Vec<GpaRange>) -> Vec<GpaRange> {
    if plan.slots().iter().all(|slot| !slot.backing.pages.is_huge()) {
        return ranges;
    }
    let ordinary = || plan.slots().iter().filter(|slot| !slot.backing.pages.is_huge()).map(|slot| slot.range);
    let common =
        |one: GpaRange, other: GpaRange| GpaRange::new(one.start().max(other.start()), one.end().min(other.end()));
    let pieces = ranges.into_iter().flat_map(|range| ordinary().map(move |slot| common(range, slot)));
    pieces.filter(|piece| !piece.is_empty()).collect()
}

/// The memory that the guest's page allocator has first: a section of each zone of each node. What the kernel allocates while it
/// boots, some tens of MiB of which large hash tables are a part, is dense there; page by page it would be thousands of faults.
fn first_sections(plan: &MemoryPlan) -> impl Iterator<Item = GpaRange> {
    let mut seen = HashSet::new();
    let mut runs = plan.runs();
    runs.retain(|(run, node)| seen.insert((*node, run.start() >= ABOVE_4G)));
    runs.into_iter().map(|(run, _)| GpaRange::of(run.start(), SECTION_SIZE.min(run.length())))
}

/// What the kernel has allocated of that when it starts init, from the lowest address up: 7 MiB of a VM of 1 GiB, 24 MiB of one of
/// 256 GiB, counted. What grows are hash tables, the largest of which are full-grown at 64 GiB.
fn first_taken(plan: &MemoryPlan) -> impl Iterator<Item = GpaRange> + '_ {
    let size = plan.input().size.bytes();
    let taken = (FIRST_TAKEN + size / FIRST_TAKEN_SHARE).min(FIRST_TAKEN_MOST).next_multiple_of(HUGE_PAGE);
    let high = plan.runs().into_iter().map(|(run, _)| run).find(|run| run.start() >= ABOVE_4G);
    high.map(|run| GpaRange::of(run.start(), taken.min(run.length()))).into_iter()
}

/// What is above the highest arena of each node: what the kernel allocates before its memmap, and, in a small VM, the large hash
/// tables.
fn top(plan: &MemoryPlan) -> Vec<GpaRange> {
    let above = |(run, _): (GpaRange, u32)| {
        let end = arenas(plan).filter(|arena| run.contains(*arena)).map(GpaRange::end).max()?;
        (end < run.end()).then(|| GpaRange::new(end, run.end()))
    };
    plan.runs().into_iter().filter_map(above).collect()
}

fn arenas(plan: &MemoryPlan) -> impl Iterator<Item = GpaRange> + '_ {
    plan.arenas().iter().map(|arena| GpaRange::new(arena.base, arena.end()))
}

/// The memmap that the guest fills before its allocator starts: that of the first section, which is at the arena's start.
///
/// The large hash tables, which come right below the arena, are left alone: in memory that is known to be zero the guest does
/// not clear them, and touches only what it uses of them.
fn first_section(arena: GpaRange) -> GpaRange {
    GpaRange::of(arena.start(), SECTION_MEMMAP.min(arena.length()))
}

/// Bytes of all `ranges` together.
#[must_use]
pub fn total(ranges: &[GpaRange]) -> u64 {
    ranges.iter().map(|range| range.length()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{AddressWidth, Backing, HostPages, MemorySize, PlanInput, Study};
    use super::*;

    const MIB: u64 = 1 << 20;
    const KERNEL: GpaRange = GpaRange::of(16 * MIB, 30 * MIB);

    fn plan(pages: HostPages, arenas: bool) -> MemoryPlan {
        let size = MemorySize::try_from(4096 * MIB).unwrap();
        let input = PlanInput::new(size, AddressWidth::reported(40));
        let backing = Backing { pages, ..Backing::default() };
        MemoryPlan::new(&PlanInput { backing, study: Study { arenas, ..Study::default() }, ..input }).unwrap()
    }

    fn backing(plan: &MemoryPlan, thp: Thp, prefault: Prefault, early: bool) -> HostBacking {
        HostBacking::new(plan, Some(KERNEL), thp, prefault, early)
    }

    #[test]
    fn by_default_what_the_guest_touches_first() {
        let plan = plan(HostPages::Base, true);
        let arena = arenas(&plan).next().unwrap();
        let backing = backing(&plan, Thp::Early, Prefault::Off, true);
        let first = [0, ABOVE_4G].map(|start| GpaRange::of(start, 128 * MIB));
        let top = GpaRange::of(arena.end(), 4 * MIB);
        assert_eq!(backing.thp, [KERNEL, first[0], first[1], arena, top]);
        assert_eq!(backing.prefault, []);
        assert_eq!(backing.ahead, [GpaRange::of(ABOVE_4G, 10 * MIB), top]);
        // One section's memmap is one huge page: what the guest fills of it is not waited for twice.
        assert_eq!(backing.early, [KERNEL, GpaRange::of(arena.start(), 2 * MIB)]);
    }

    #[test]
    fn firmware_works_at_the_top_of_low_memory() {
        let plan = plan(HostPages::Base, true);
        let of = |thp| HostBacking::new(&plan, None, thp, Prefault::Off, true);
        let (without, with) = (of(Thp::Early), of(Thp::Early).with_firmware(&plan));
        assert_eq!(with.thp.last(), Some(&GpaRange::new(440 * MIB, 512 * MIB)));
        assert_eq!(with.thp[..with.thp.len() - 1], without.thp);
        assert_eq!((with.early, with.ahead, with.prefault), (vec![], vec![], without.prefault));
        assert_eq!(of(Thp::Off).with_firmware(&plan).thp, []);
    }

    #[test]
    fn a_kernel_takes_whole_pages() {
        let kernel = GpaRange::new(16 * MIB + 1, 18 * MIB - 1);
        let backing = HostBacking::new(&plan(HostPages::Base, false), Some(kernel), Thp::Early, Prefault::Off, true);
        assert_eq!(backing.early, [GpaRange::new(16 * MIB, 18 * MIB)]);
    }

    #[test]
    fn nothing_is_backed_twice() {
        let plan = plan(HostPages::Base, true);
        for (prefault, early) in [(Prefault::Arenas, vec![KERNEL]), (Prefault::All, vec![])] {
            let backing = backing(&plan, Thp::Early, prefault, true);
            assert_eq!(backing.early, early);
            let all: Vec<_> = [&backing.early, &backing.ahead, &backing.prefault].into_iter().flatten().collect();
            for (index, one) in all.iter().enumerate() {
                assert!(!all.iter().skip(index + 1).any(|other| one.overlaps(**other)), "{one} in {all:?}");
            }
        }
        assert_eq!(total(&backing(&plan, Thp::Early, Prefault::All, true).prefault), 4096 * MIB);
        assert_eq!(total(&backing(&plan, Thp::Early, Prefault::Arenas, true).prefault), 64 * MIB);
    }

    #[test]
    fn huge_pages_are_asked_for_wherever_all_is_taken() {
        let plan = plan(HostPages::Base, true);
        for (thp, prefault, expected) in [
            (Thp::Off, Prefault::All, 0),
            (Thp::Off, Prefault::Off, 0),
            (Thp::Early, Prefault::All, 4096),
            (Thp::All, Prefault::Off, 4096),
            (Thp::Early, Prefault::Arenas, 30 + 2 * 128 + 64 + 4),
        ] {
            assert_eq!(total(&backing(&plan, thp, prefault, true).thp), expected * MIB, "{thp:?} {prefault:?}");
        }
    }

    #[test]
    fn pool_pages_need_no_advice() {
        let plan = plan(HostPages::Huge2M, true);
        assert_eq!(backing(&plan, Thp::All, Prefault::All, true).thp, []);
    }

    #[test]
    fn each_part_can_be_switched_off() {
        let bare = plan(HostPages::Base, false);
        let backing = |early| backing(&bare, Thp::Early, Prefault::Off, early);
        let thp = vec![KERNEL, GpaRange::of(0, 128 * MIB), GpaRange::of(ABOVE_4G, 128 * MIB)];
        let ahead = vec![GpaRange::of(ABOVE_4G, 10 * MIB)];
        assert_eq!(backing(true), HostBacking { thp, prefault: vec![], early: vec![KERNEL], ahead });
        assert_eq!((backing(false).early, backing(false).ahead), (vec![], vec![]));
    }

    #[test]
    fn what_is_backed_ahead_grows_until_the_hash_tables_do_not() {
        let ahead = |mib: u64| {
            let size = MemorySize::try_from(mib * MIB).unwrap();
            let plan = MemoryPlan::new(&PlanInput::new(size, AddressWidth::reported(46))).unwrap();
            let first = backing(&plan, Thp::Early, Prefault::Off, true).ahead.first().copied();
            first.filter(|range| range.start() == ABOVE_4G).map(|range| range.length() / MIB)
        };
        assert_eq!(
            [512, 514, 1024, 16 << 10, 64 << 10, 1 << 20].map(ahead),
            [None, Some(2), Some(10), Some(12), Some(24), Some(24)]
        );
    }
}
