// SPDX-License-Identifier: Apache-2.0
//! What host memory is asked for beforehand, as ranges of guest physical addresses.

use std::collections::HashSet;

use flatboot_handoff::{Arena, SECTION_SIZE};

use super::arenas::SECTION_MEMMAP;
use super::choice::{Prefault, Thp};
use super::input::{PayloadKind, PlanInput};
use super::range::GpaRange;
use super::zone::{Slot, ram, runs};
use crate::layout::{ABOVE_4G, PAGE_SIZE};

/// What a guest's kernel takes and uses of its memory until it starts init.
const FIRST_TAKEN: u64 = 10 << 20;

/// What EDK2 works in at the top of low memory: 64 MiB and its page tables (`GetPeiMemoryCap()` in OvmfPkg/PlatformPei/MemDetect.c),
/// in whole huge pages.
const FIRMWARE_WORKS_IN: u64 = 72 << 20;

/// What host memory is asked for beforehand. Each list begins with what is wanted first.
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
    /// What follows from a user's choices for memory of `slots`, with `arenas` for its memmap.
    ///
    /// A VM that starts with firmware has huge pages, if any are asked for, where that works, too. vCPU threads back nothing of
    /// it: firmware has all processors do that ahead of the kernel, and until then it is their company that would slow it down.
    pub(super) fn new(input: &PlanInput, payload: PayloadKind, slots: &[Slot], arenas: &[Arena]) -> Self {
        let memory = Memory { slots, runs: runs(slots), arenas };
        // Host memory comes in pages, whatever the image's segments are.
        let (kernel, firmware) = match payload {
            PayloadKind::Kernel { image, .. } => (image.map(whole_pages), None),
            PayloadKind::Firmware => (None, memory.firmware_works_in()),
        };
        let thp = match (input.thp, input.prefault) {
            (Thp::Off, _) => Vec::new(),
            // What is all taken at once is taken in the fewest pieces.
            (Thp::All, _) | (Thp::Early, Prefault::All) => memory.all(),
            (Thp::Early, Prefault::Off | Prefault::Arenas) => {
                let first = kernel.into_iter().chain(memory.first_sections(kernel.is_some()));
                first.chain(memory.arenas()).chain(memory.top()).chain(firmware).collect()
            }
        };
        let of_vcpus = input.early && payload != PayloadKind::Firmware;
        let (early, ahead) = match input.prefault {
            Prefault::Off | Prefault::Arenas if !of_vcpus => (Vec::new(), Vec::new()),
            Prefault::All => (Vec::new(), Vec::new()),
            Prefault::Off => {
                (kernel.into_iter().chain(memory.arenas().map(first_section)).collect(), memory.first_taken())
            }
            Prefault::Arenas => (kernel.into_iter().collect(), memory.first_taken()),
        };
        let prefault = match input.prefault {
            Prefault::Off => Vec::new(),
            Prefault::Arenas => memory.arenas().collect(),
            Prefault::All => memory.all(),
        };
        Self { thp: memory.without_pools(thp), prefault, early, ahead }
    }
}

fn whole_pages(range: GpaRange) -> GpaRange {
    GpaRange::new(range.start() - range.start() % PAGE_SIZE, range.end().next_multiple_of(PAGE_SIZE))
}

/// The memmap that the guest fills before its allocator starts: that of the first section, which is at the arena's start.
///
/// The large hash tables, which come right below the arena, are left alone: in memory that is known to be zero the guest does
/// not clear them, and touches only what it uses of them.
fn first_section(arena: GpaRange) -> GpaRange {
    GpaRange::of(arena.start(), SECTION_MEMMAP.min(arena.length()))
}

/// The memory that is backed.
struct Memory<'a> {
    slots: &'a [Slot],
    /// By node.
    runs: Vec<(GpaRange, u32)>,
    arenas: &'a [Arena],
}

impl Memory<'_> {
    fn all(&self) -> Vec<GpaRange> {
        self.slots.iter().map(|slot| slot.range).collect()
    }

    fn arenas(&self) -> impl Iterator<Item = GpaRange> + '_ {
        self.arenas.iter().map(|arena| GpaRange::new(arena.base, arena.end()))
    }

    /// What of `ranges` is not backed by a reserved pool, whose pages are huge already.
    fn without_pools(&self, ranges: Vec<GpaRange>) -> Vec<GpaRange> {
        if self.slots.iter().all(|slot| !slot.backing.pages.is_huge()) {
            return ranges;
        }
        let ordinary = || self.slots.iter().filter(|slot| !slot.backing.pages.is_huge()).map(|slot| slot.range);
        let common =
            |one: GpaRange, other: GpaRange| GpaRange::new(one.start().max(other.start()), one.end().min(other.end()));
        let pieces = ranges.into_iter().flat_map(|range| ordinary().map(move |slot| common(range, slot)));
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    /// The memory that the guest's page allocator has first: a section of each zone of each node. What the kernel allocates while
    /// it boots, some MiB, is dense there; page by page it would be thousands of faults. If the kernel's image is `known`, which
    /// has huge pages anyway, and a section of the node is above 4 GiB, its low memory goes without: a hundred pages are used.
    fn first_sections(&self, known: bool) -> impl Iterator<Item = GpaRange> {
        let is_high = |run: GpaRange| run.start() >= ABOVE_4G;
        let whole = self.runs.iter().filter(|(run, _)| known && is_high(*run) && run.length() >= SECTION_SIZE);
        let high_will_do: HashSet<u32> = whole.map(|(_, node)| *node).collect();
        let mut seen = HashSet::new();
        let runs = self.runs.iter().filter(move |(run, node)| is_high(*run) || !high_will_do.contains(node));
        let first = runs.filter(move |(run, node)| seen.insert((*node, is_high(*run))));
        first.map(|(run, _)| GpaRange::of(run.start(), SECTION_SIZE.min(run.length())))
    }

    /// What the kernel uses until it starts init. Of the memory above 4 GiB, from the lowest address up, whatever its size. It
    /// takes more, for hash tables that follow the size of memory, but they come later and are not written to. And what it takes
    /// from the top.
    fn first_taken(&self) -> Vec<GpaRange> {
        let high = self.runs.iter().map(|(run, _)| run).find(|run| run.start() >= ABOVE_4G);
        let lowest = high.map(|run| GpaRange::of(run.start(), FIRST_TAKEN.min(run.length())));
        lowest.into_iter().chain(self.top()).collect()
    }

    /// What is above the highest arena of each node: what the kernel allocates before its memmap, and, in a small VM, the large
    /// hash tables.
    fn top(&self) -> impl Iterator<Item = GpaRange> {
        self.runs.iter().filter_map(|(run, _)| {
            let end = self.arenas().filter(|arena| run.contains(*arena)).map(GpaRange::end).max()?;
            (end < run.end()).then(|| GpaRange::new(end, run.end()))
        })
    }

    fn firmware_works_in(&self) -> Option<GpaRange> {
        let low = *ram(self.slots).first()?;
        Some(GpaRange::new(low.end() - FIRMWARE_WORKS_IN.min(low.length()), low.end()))
    }
}

/// Bytes of all `ranges` together.
#[must_use]
pub fn total(ranges: &[GpaRange]) -> u64 {
    ranges.iter().map(|range| range.length()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{AddressWidth, Backing, HostPages, MemoryPlan, MemorySize, Study};
    use super::*;

    const MIB: u64 = 1 << 20;
    const KERNEL: GpaRange = GpaRange::of(16 * MIB, 30 * MIB);
    const DIRECT: PayloadKind = PayloadKind::Kernel { image: Some(KERNEL), initramfs: None };

    /// An ordinary VM of 4 GiB, or what `change` makes of it.
    fn input(change: impl FnOnce(&mut PlanInput)) -> PlanInput {
        let mut input = PlanInput::new(MemorySize::try_from(4096 * MIB).unwrap());
        change(&mut input);
        input
    }

    fn without_arenas(early: bool) -> PlanInput {
        input(|input| (input.early, input.study) = (early, Study { arenas: false, ..Study::default() }))
    }

    fn with(thp: Thp, prefault: Prefault) -> PlanInput {
        input(|input| (input.thp, input.prefault) = (thp, prefault))
    }

    fn plan(input: &PlanInput, payload: PayloadKind) -> MemoryPlan {
        MemoryPlan::new(input, payload, AddressWidth::reported(46)).unwrap()
    }

    fn backing(input: &PlanInput, payload: PayloadKind) -> HostBacking {
        plan(input, payload).backing().clone()
    }

    #[test]
    fn by_default_what_the_guest_touches_first() {
        let plan = plan(&input(|_| ()), DIRECT);
        let arena = plan.arenas()[0];
        let arena = GpaRange::of(arena.base, arena.length);
        let backing = plan.backing();
        let first = GpaRange::of(ABOVE_4G, 128 * MIB);
        let top = GpaRange::of(arena.end(), 4 * MIB);
        assert_eq!(backing.thp, [KERNEL, first, arena, top]);
        assert_eq!(backing.prefault, []);
        assert_eq!(backing.ahead, [GpaRange::of(ABOVE_4G, 10 * MIB), top]);
        // One section's memmap is one huge page: what the guest fills of it is not waited for twice.
        assert_eq!(backing.early, [KERNEL, GpaRange::of(arena.start(), 2 * MIB)]);
    }

    #[test]
    fn firmware_works_at_the_top_of_low_memory() {
        let direct = PayloadKind::Kernel { image: None, initramfs: None };
        let [without, with_it] = [direct, PayloadKind::Firmware].map(|payload| backing(&input(|_| ()), payload));
        assert_eq!(with_it.thp.last(), Some(&GpaRange::new(440 * MIB, 512 * MIB)));
        assert_eq!(with_it.thp[..with_it.thp.len() - 1], without.thp);
        assert_eq!((with_it.early, with_it.ahead, with_it.prefault), (vec![], vec![], without.prefault));
        let of = |thp, prefault| backing(&with(thp, prefault), PayloadKind::Firmware);
        assert_eq!(of(Thp::Off, Prefault::Off).thp, []);
        let all = of(Thp::Early, Prefault::All);
        assert_eq!((total(&all.thp), total(&all.prefault)), (4096 * MIB, 4096 * MIB));
    }

    #[test]
    fn a_kernel_takes_whole_pages() {
        let kernel = GpaRange::new(16 * MIB + 1, 18 * MIB - 1);
        let payload = PayloadKind::Kernel { image: Some(kernel), initramfs: None };
        assert_eq!(backing(&without_arenas(true), payload).early, [GpaRange::new(16 * MIB, 18 * MIB)]);
    }

    #[test]
    fn nothing_is_backed_twice() {
        for (prefault, early, all) in [(Prefault::Arenas, vec![KERNEL], 64), (Prefault::All, vec![], 4096)] {
            let backing = backing(&with(Thp::Early, prefault), DIRECT);
            assert_eq!(backing.early, early);
            assert_eq!(total(&backing.prefault), all * MIB);
            let all: Vec<_> = [&backing.early, &backing.ahead, &backing.prefault].into_iter().flatten().collect();
            for (index, one) in all.iter().enumerate() {
                assert!(!all.iter().skip(index + 1).any(|other| one.overlaps(**other)), "{one} in {all:?}");
            }
        }
    }

    #[test]
    fn huge_pages_are_asked_for_wherever_all_is_taken() {
        for (thp, prefault, expected) in [
            (Thp::Off, Prefault::All, 0),
            (Thp::Off, Prefault::Off, 0),
            (Thp::Early, Prefault::All, 4096),
            (Thp::All, Prefault::Off, 4096),
            (Thp::Early, Prefault::Arenas, 30 + 128 + 64 + 4),
        ] {
            assert_eq!(total(&backing(&with(thp, prefault), DIRECT).thp), expected * MIB, "{thp:?} {prefault:?}");
        }
    }

    #[test]
    fn pool_pages_need_no_advice() {
        let backing_of_pool = Backing { pages: HostPages::Huge2M, ..Backing::default() };
        for payload in [DIRECT, PayloadKind::Firmware] {
            for thp in [Thp::Early, Thp::All] {
                let mut pool = with(thp, Prefault::All);
                pool.zones[0].backing = backing_of_pool;
                assert_eq!(backing(&pool, payload).thp, []);
            }
        }
    }

    #[test]
    fn each_part_can_be_switched_off() {
        let backing = |early| backing(&without_arenas(early), DIRECT);
        let thp = vec![KERNEL, GpaRange::of(ABOVE_4G, 128 * MIB)];
        let ahead = vec![GpaRange::of(ABOVE_4G, 10 * MIB)];
        assert_eq!(backing(true), HostBacking { thp, prefault: vec![], early: vec![KERNEL], ahead });
        assert_eq!((backing(false).early, backing(false).ahead), (vec![], vec![]));
    }

    #[test]
    fn low_memory_has_huge_pages_where_most_is_taken_from_it() {
        let low = GpaRange::of(0, 128 * MIB);
        let has_low = |mib: u64, image| {
            let input = PlanInput::new(MemorySize::try_from(mib * MIB).unwrap());
            backing(&input, PayloadKind::Kernel { image, initramfs: None }).thp.contains(&low)
        };
        assert_eq!([512, 638, 640, 4096].map(|mib| has_low(mib, Some(KERNEL))), [true, true, false, false]);
        assert!(has_low(4096, None));
    }

    #[test]
    fn what_is_backed_ahead_does_not_grow() {
        let ahead = |mib: u64| {
            let size = MemorySize::try_from(mib * MIB).unwrap();
            let first = backing(&PlanInput::new(size), DIRECT).ahead.first().copied();
            first.filter(|range| range.start() == ABOVE_4G).map(|range| range.length() / MIB)
        };
        assert_eq!([512, 514, 1024, 64 << 10, 1 << 20].map(ahead), [None, Some(2), Some(10), Some(10), Some(10)]);
    }
}
