// SPDX-License-Identifier: Apache-2.0
//! What holds for every plan, and what some plans are exactly.
#![expect(clippy::expect_used, reason = "tests may stop at the first surprise")]

use flatboot::layout::{ABOVE_4G, HANDOFF, HIGH_MEMORY_START, LOW_MEMORY_MAX, LOW_MEMORY_MAX_PC};
use flatboot::memory::{
    AddressWidth, Backing, E820_MAX_ENTRIES, E820Kind, GpaRange, HostPages, Layout, MAX_HOLES, MemoryMap, MemoryPlan,
    MemorySize, PayloadKind, PlanError, PlanInput, Prefault, Study, Thp, Zone,
};
use flatboot_handoff::{ARENA_ALIGN, Region, RegionFlags, SECTION_SIZE, Table};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

fn input(size: u64, holes: u16) -> PlanInput {
    let size = MemorySize::try_from(size).expect("a valid size");
    PlanInput { study: Study { holes, ..Study::default() }, ..PlanInput::new(size) }
}

/// The same of one zone, that `pages` back.
fn input_of(pages: HostPages, size: u64, study: Study) -> PlanInput {
    let mut input = PlanInput { study, ..input(size.next_multiple_of(pages.bytes()), 0) };
    input.zones[0].backing.pages = pages;
    input
}

/// A kernel that takes `image`, with an initramfs of so many bytes.
const fn kernel(image: GpaRange, initramfs: Option<u64>) -> PayloadKind {
    PayloadKind::Kernel { image: Some(image), initramfs }
}

/// Nothing is known of what goes to memory.
const UNKNOWN: PayloadKind = PayloadKind::Kernel { image: None, initramfs: None };

fn planned(input: &PlanInput, payload: PayloadKind) -> Result<MemoryPlan, PlanError> {
    MemoryPlan::new(input, payload, AddressWidth::reported(48))
}

fn plan(size: u64, holes: u16) -> MemoryPlan {
    planned(&input(size, holes), UNKNOWN).expect("a plan")
}

fn ranges(regions: &[Region]) -> Vec<GpaRange> {
    regions.iter().map(|region| GpaRange::of(region.base, region.length)).collect()
}

fn arena_ranges(plan: &MemoryPlan) -> Vec<GpaRange> {
    plan.arenas().iter().map(|arena| GpaRange::of(arena.base, arena.length)).collect()
}

/// Bytes of memmap: 2 MiB for every section that holds RAM.
fn memmap(plan: &MemoryPlan) -> u64 {
    plan.ram().iter().map(|slot| slot.end().div_ceil(SECTION_SIZE) - slot.start() / SECTION_SIZE).sum::<u64>() * 2 * MIB
}

fn sorted_and_disjoint(ranges: &[GpaRange]) -> bool {
    ranges.iter().all(|range| !range.is_empty()) && ranges.windows(2).all(|pair| pair[0].end() <= pair[1].start())
}

fn length(ranges: &[GpaRange]) -> u64 {
    ranges.iter().map(|range| range.length()).sum()
}

/// Small sizes, where the special cases are, as often as large ones.
fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![64..1024u64, 64..16 * 1024u64, 64..=16 * 1024 * 1024u64].prop_map(|mib| mib * MIB)
}

prop_compose! {
    /// Every switch in either position; sizes are whole pages.
    fn inputs()(
        size in sizes(),
        holes in 0..=MAX_HOLES,
        cut in any::<bool>(),
        pages in prop_oneof![Just(HostPages::Base), Just(HostPages::Huge2M), Just(HostPages::Huge1G)],
        layout in prop_oneof![Just(Layout::Split), Just(Layout::Pc)],
        [arenas, zeroed] in any::<[bool; 2]>(),
    ) -> PlanInput {
        let holes = if cut && pages != HostPages::Huge1G { holes } else { 0 };
        let study = Study { layout, arenas, zeroed, holes };
        input_of(pages, size, study)
    }
}

/// Most memory below 4 GiB.
fn low_max(input: &PlanInput) -> u64 {
    match (input.study.layout, input.zones[0].backing.pages) {
        (Layout::Split, HostPages::Huge1G) => GIB,
        (Layout::Split, _) => LOW_MEMORY_MAX,
        (Layout::Pc, _) => LOW_MEMORY_MAX_PC,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn every_plan_keeps_the_rules(input in inputs()) {
        let (size, holes) = (input.size().0, input.study.holes);
        let planned = planned(&input, UNKNOWN);
        let sections = size.saturating_sub(low_max(&input)) / SECTION_SIZE;
        if holes > 0 && sections <= holes.into() {
            prop_assert_eq!(planned, Err(PlanError::TooFewSections { holes, sections }));
            return Ok(());
        }
        let plan = planned.expect("a plan");

        check_ram(&plan, size, holes)?;
        check_hand_off(&plan)?;
        if input.study.arenas {
            check_arenas(&plan)?;
        } else {
            prop_assert!(plan.arenas().is_empty());
        }
    }

    #[test]
    fn an_initramfs_overlaps_nothing(
        input in inputs(),
        initramfs in 1..3 * GIB,
        kernel_end in HIGH_MEMORY_START..GIB,
    ) {
        let input = PlanInput { study: Study { holes: 0, ..input.study }, ..input };
        let image = GpaRange::new(HIGH_MEMORY_START, kernel_end);
        if planned(&input, kernel(image, None)).is_err() {
            return Ok(());
        }
        match planned(&input, kernel(image, Some(initramfs))) {
            Ok(plan) => {
                let range = plan.initramfs().expect("a place");
                prop_assert_eq!(range.length(), initramfs);
                prop_assert_eq!(range.start() % 4096, 0);
                prop_assert!(plan.ram().iter().any(|slot| slot.contains(range)));
                prop_assert!(!range.overlaps(image));
                prop_assert!(!arena_ranges(&plan).iter().any(|arena| arena.overlaps(range)));
                let zeroed = |region: &&Region| region.flags.contains(RegionFlags::ZEROED);
                let zeroed: Vec<_> = plan.regions().iter().filter(zeroed).copied().collect();
                prop_assert!(!ranges(&zeroed).iter().any(|zeroed| zeroed.overlaps(range)));
                prop_assert!(plan.hand_off().is_ok());
            }
            Err(PlanError::Initramfs { size, room, .. }) => {
                prop_assert!(size == initramfs && room < size);
                let fits = planned(&input, kernel(image, Some(room.max(1)))).is_ok();
                prop_assert_eq!(fits, room > 0);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

prop_compose! {
    /// Zones of up to four nodes, each node's next to each other, whole sections but for the last zone's end.
    fn zoned()(
        zones in prop::collection::vec((0..3u32, 1..100u64, 0..3usize), 1..12),
        tail in 0..128u64,
        layout in prop_oneof![Just(Layout::Split), Just(Layout::Pc)],
    ) -> PlanInput {
        let mut node = 0;
        let mut last_node = None;
        let count = zones.len();
        let zones: Vec<_> = zones.into_iter().enumerate().map(|(index, (step, sections, pages))| {
            node = if last_node.is_none() { 0 } else { node + u32::from(step == 0) };
            last_node = Some(node);
            let pages = [HostPages::Base, HostPages::Huge2M, HostPages::Huge1G][pages];
            let tail = if index + 1 == count && pages == HostPages::Base { tail * MIB } else { 0 };
            let size = (sections * SECTION_SIZE + tail).next_multiple_of(pages.bytes());
            Zone { size, node, backing: Backing { pages, ..Backing::default() } }
        }).collect();
        let size = zones.iter().map(|zone| zone.size).sum();
        PlanInput { zones, study: Study { layout, ..Study::default() }, ..input(size, 0) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_zone_lies_on_its_node(input in zoned()) {
        let plan = planned(&input, UNKNOWN).expect("a plan");
        let (slots, zones) = (plan.slots(), &input.zones);
        prop_assert!(sorted_and_disjoint(&slots.iter().map(|slot| slot.range).collect::<Vec<_>>()));
        prop_assert_eq!(slots[0].range.start(), 0);
        prop_assert!(slots.iter().all(|slot| slot.range.end() <= LOW_MEMORY_MAX_PC || slot.range.start() >= ABOVE_4G));
        prop_assert!(slots[1..].iter().all(|slot| slot.range.start() % SECTION_SIZE == 0));
        prop_assert!(slots.iter().all(|slot| slot.range.length() % slot.backing.pages.bytes() == 0));

        // In order, each zone is one slot, or two of which one ends below 4 GiB and the other begins there.
        let mut rest = slots.iter();
        for zone in zones {
            let mut left = zone.size;
            while left > 0 {
                let slot = rest.next().expect("a slot");
                prop_assert_eq!((slot.node, slot.backing), (zone.node, zone.backing));
                prop_assert!(slot.range.length() == left || slot.range.end() <= LOW_MEMORY_MAX_PC);
                left -= slot.range.length();
            }
        }
        prop_assert!(rest.next().is_none());
        let low_max = low_max(&input);
        let low: u64 = plan.ram()[0].end();
        prop_assert!(low <= low_max);

        check_hand_off(&plan)?;
        let e820: u64 =
            plan.e820().iter().filter(|entry| entry.kind == E820Kind::Ram).map(|entry| entry.range.length()).sum();
        prop_assert_eq!(e820, input.size().0 - (MIB - 0x9fc00));
        prop_assert!(plan.e820().len() <= 4, "neighbours are one range");
        for region in plan.regions() {
            prop_assert_eq!(plan.node_of(region.base), region.node);
            prop_assert_eq!(plan.node_of(region.end() - 1), region.node);
        }
        check_nodes(&plan)?;
    }
}

/// Each node has its memmap, and all of it lies on the node.
fn check_nodes(plan: &MemoryPlan) -> Result<(), TestCaseError> {
    for node in plan.regions().iter().map(|region| region.node) {
        let own = || plan.regions().iter().filter(move |region| region.node == node);
        let sections: u64 = own().map(|region| region.end().div_ceil(SECTION_SIZE) - region.base / SECTION_SIZE).sum();
        let arenas = plan.arenas().iter().filter(|arena| arena.node == node);
        let ranges: Vec<_> = arenas.map(|arena| GpaRange::of(arena.base, arena.length)).collect();
        // A node that has little above 4 GiB may have none.
        let high: u64 = own().filter(|region| region.base >= ABOVE_4G).map(|region| region.length).sum();
        let room = if own().count() == 1 { own().map(|region| region.length).sum::<u64>() / 2 } else { high };
        prop_assert!(!ranges.is_empty() || room < sections * 2 * MIB + 8 * MIB, "no arena on node {}", node);
        prop_assert!(ranges.is_empty() || length(&ranges) == sections * 2 * MIB);
        for arena in ranges {
            prop_assert!(own().any(|region| GpaRange::of(region.base, region.length).contains(arena)));
        }
    }
    Ok(())
}

#[test]
fn two_nodes() {
    let zone =
        |gib, node, host_node| Zone { size: gib * GIB, node, backing: Backing { host_node, ..Backing::default() } };
    let zones = vec![zone(2, 0, Some(0)), zone(1, 0, None), zone(3, 1, Some(1))];
    let plan = planned(&PlanInput { zones, ..input(6 * GIB, 0) }, UNKNOWN).expect("a plan");
    let shown = shown(&plan);
    let rows: Vec<_> = shown.lines().filter(|line| line.contains("slot") || line.contains(" of node ")).collect();
    let expected = [
        "6 GiB of RAM in 4 KVM slots, 4 KiB pages, 48-bit guest physical addresses",
        "0x0000000000000  0x0000020000000      512 MiB  KVM slot 0",
        "0x0000000100000  0x0000020000000      511 MiB    RAM, region 0 of node 0",
        "0x0000100000000  0x00001a0000000     2560 MiB    region 1 of node 0 (ZEROED)",
        "0x0000100000000  0x0000160000000     1536 MiB      KVM slot 1",
        "0x0000160000000  0x00001a0000000        1 GiB      KVM slot 2",
        "0x000019cc00000  0x000019fc00000       48 MiB        memmap arena 0 of node 0",
        "0x00001a0000000  0x0000260000000        3 GiB    KVM slot 3, region 2 of node 1 (ZEROED)",
        "0x000025cc00000  0x000025fc00000       48 MiB      memmap arena 1 of node 1",
    ];
    assert_eq!(rows, expected, "\n{shown}");
    let backing = plan.backing();
    // The memmap of each node's first section; what is taken first, and each node's own data.
    let memmaps = [0x19cc00000, 0x25cc00000].map(|base| GpaRange::of(base, 2 * MIB));
    assert_eq!(backing.early, memmaps);
    let tops = [0x19fc00000, 0x25fc00000].map(|base| GpaRange::of(base, 4 * MIB));
    assert_eq!(backing.ahead[1..], tops);
}

#[test]
fn pools_are_not_asked_for_huge_pages() {
    let zone = |pages, node| Zone { size: 2 * GIB, node, backing: Backing { pages, ..Backing::default() } };
    let zones = vec![zone(HostPages::Base, 0), zone(HostPages::Huge2M, 1)];
    let plan = |thp, prefault| {
        let input = PlanInput { zones: zones.clone(), thp, prefault, ..input(4 * GIB, 0) };
        planned(&input, UNKNOWN).expect("a plan")
    };
    for prefault in [Prefault::Off, Prefault::All] {
        let plan = plan(Thp::All, prefault);
        let ordinary: Vec<_> = plan.slots().iter().map(|slot| slot.range).take(2).collect();
        assert_eq!(plan.backing().thp, ordinary);
    }
    let plan = plan(Thp::Early, Prefault::Off);
    assert!(
        plan.backing().thp.iter().all(|range| plan.node_of(range.start()) == 0 && plan.node_of(range.end() - 1) == 0)
    );
}

fn check_ram(plan: &MemoryPlan, size: u64, holes: u16) -> Result<(), TestCaseError> {
    let slots = plan.ram();
    prop_assert!(sorted_and_disjoint(slots));
    prop_assert_eq!(length(slots), size);
    prop_assert_eq!(slots[0].start(), 0);
    prop_assert_eq!(slots[0].end(), size.min(low_max(plan.input())));
    prop_assert!(slots[1..].iter().all(|slot| slot.start() >= ABOVE_4G && slot.start() % SECTION_SIZE == 0));
    if holes > 0 {
        prop_assert_eq!(slots.len(), usize::from(holes) + 2);
        prop_assert!(slots[1..].windows(2).all(|pair| pair[0].end() + SECTION_SIZE == pair[1].start()));
        let whole = |slot: &GpaRange| slot.length() / SECTION_SIZE;
        let lengths = || slots[1..].iter().map(whole);
        prop_assert!(lengths().max() <= lengths().min().map(|shortest| shortest + 1));
    }

    let e820 = plan.e820();
    prop_assert!(e820.len() <= E820_MAX_ENTRIES);
    prop_assert!(sorted_and_disjoint(&e820.iter().map(|entry| entry.range).collect::<Vec<_>>()));
    prop_assert!(e820.iter().all(|entry| slots.iter().any(|slot| slot.contains(entry.range))));
    let ram = e820.iter().filter(|entry| entry.kind == E820Kind::Ram).map(|entry| entry.range.length()).sum::<u64>();
    // All but the legacy hole, 0x9fc00 to 1 MiB, is usable.
    prop_assert_eq!(ram, size - (MIB - 0x9fc00));
    Ok(())
}

fn check_hand_off(plan: &MemoryPlan) -> Result<(), TestCaseError> {
    let table = plan.hand_off().expect("a valid table");
    // `struct setup_data` before it has 16 bytes.
    prop_assert!(table.len() as u64 + 16 <= HANDOFF.end - HANDOFF.start);
    let table = Table::parse(&table).expect("a valid table");
    prop_assert!(table.regions().eq(plan.regions().iter().copied()));
    prop_assert!(table.arenas().eq(plan.arenas().iter().copied()));

    let regions = ranges(plan.regions());
    prop_assert_eq!(regions[0].start(), HIGH_MEMORY_START);
    prop_assert_eq!(length(&regions), length(plan.ram()) - MIB);
    let ram =
        |range: &GpaRange| plan.e820().iter().any(|entry| entry.kind == E820Kind::Ram && entry.range.contains(*range));
    prop_assert!(regions.iter().all(ram));
    let input = plan.input();
    for region in plan.regions() {
        prop_assert_eq!(region.flags.contains(RegionFlags::ZEROED), input.study.zeroed && region.base >= ABOVE_4G);
    }
    Ok(())
}

fn check_arenas(plan: &MemoryPlan) -> Result<(), TestCaseError> {
    let arenas = arena_ranges(plan);
    if arenas.is_empty() {
        // Only where the memory above 4 GiB is less than twice the whole memmap, and its rounding and margin.
        let high = length(&plan.ram()[1..]);
        prop_assert!(high > 0 && high / 2 < memmap(plan) + 4 * MIB + plan.ram().len() as u64 * ARENA_ALIGN, "no arena");
        return Ok(());
    }
    prop_assert_eq!(length(&arenas), memmap(plan));
    let (low, high) = arenas.into_iter().partition::<Vec<GpaRange>, _>(|arena| arena.end() <= ABOVE_4G);
    prop_assert!(low.is_empty() || (high.is_empty() && plan.ram().len() == 1));
    Ok(())
}

/// The whole plan as the map shows it: what changes here changes what guests see.
fn shown(plan: &MemoryPlan) -> String {
    MemoryMap(plan).to_string()
}

#[test]
fn a_ragged_vm() {
    let shown = shown(&plan(5 * GIB + 4 * MIB, 0));
    let expected = "\
5124 MiB of RAM in 2 KVM slots, 4 KiB pages, 48-bit guest physical addresses
hand-off: 2 regions, 1 arena, 112 bytes
host memory: none prefaulted, 2 MiB backed early by the vCPU threads and 14 MiB by all but the first, 342 MiB asked for as transparent huge pages

START            END                     SIZE  WHAT
0x0000000000000  0x0000020000000      512 MiB  KVM slot 0
0x0000000000000  0x000000009fc00      639 KiB    RAM
0x0000000000500  0x0000000000600        256 B      GDT
0x0000000007000  0x0000000008000        4 KiB      zero page
0x0000000009000  0x000000000f000       24 KiB      boot page tables
0x0000000020000  0x0000000021000        4 KiB      command line
0x0000000030000  0x0000000070000      256 KiB      hand-off
0x00000000e0000  0x0000000100000      128 KiB    reserved, ACPI tables
0x0000000100000  0x0000020000000      511 MiB    RAM, region 0
0x00000d0000000  0x00000d000e000       56 KiB  virtio-mmio
0x00000d0010000  0x00000d0011000        4 KiB  memory device
0x00000fea00200  0x00000fea00203          3 B  firmware's power registers
0x00000fea01000  0x00000fea02000        4 KiB  VM generation ID
0x00000fec00000  0x00000fec01000        4 KiB  I/O APIC
0x00000fee00000  0x00000fee01000        4 KiB  local APIC
0x00000feffc000  0x00000feffd000        4 KiB  KVM identity map
0x00000feffd000  0x00000ff000000       12 KiB  KVM TSS
0x00000ff000000  0x0000100000000       16 MiB  firmware flash
0x0000100000000  0x0000220400000     4612 MiB  KVM slot 1, RAM, region 1 (ZEROED)
0x000021ae00000  0x0000220000000       82 MiB    memmap arena 0
";
    assert_eq!(shown, expected, "\n{shown}");
}

#[test]
fn a_small_vm_has_one_region_and_its_arena_in_it() {
    let plan = plan(64 * MIB, 0);
    assert_eq!(ranges(plan.regions()), [GpaRange::new(MIB, 64 * MIB)]);
    assert_eq!(arena_ranges(&plan), [GpaRange::new(58 * MIB, 60 * MIB)]);
    let initramfs = |payload| planned(&input(64 * MIB, 0), payload).map(|plan| plan.initramfs());
    let low = GpaRange::new(MIB, 32 * MIB);
    assert_eq!(initramfs(kernel(low, Some(MIB))), Ok(Some(GpaRange::new(57 * MIB, 58 * MIB))));
    assert_eq!((initramfs(kernel(low, None)), initramfs(PayloadKind::Firmware)), (Ok(None), Ok(None)));
}

#[test]
fn memory_just_above_the_low_part_is_ragged_and_has_no_arena() {
    let plan = plan(513 * MIB, 0);
    assert_eq!(ranges(plan.regions()), [GpaRange::new(MIB, 512 * MIB), GpaRange::of(ABOVE_4G, MIB)]);
    assert!(plan.arenas().is_empty());
}

#[test]
fn the_arena_of_a_cut_vm_is_where_linux_puts_the_memmap() {
    // 64 parts of 7 or 8 sections; the memmap of 64 GiB has 1 GiB, which is the whole of the highest part of 8.
    let plan = plan(64 * GIB, 63);
    assert_eq!(plan.regions().len(), 65);
    assert_eq!(arena_ranges(&plan), [GpaRange::new(0x11_9800_0000, 0x11_d800_0000)]);

    // 128 GiB in 125 parts of at most 1.125 GiB: no part holds 2 GiB, so the highest ones are filled.
    let plan = self::plan(128 * GIB, 124);
    assert_eq!(plan.arenas().len(), 3);
    assert_eq!(plan.arenas()[2].base, plan.regions()[125].base);
    assert_eq!(length(&arena_ranges(&plan)), 2 * GIB);
    assert_eq!(plan.arenas().last().map(|arena| arena.end() + 4 * MIB), plan.ram().last().map(|slot| slot.end()));
}

#[test]
fn an_initramfs_goes_low_if_it_fits() {
    let placed = |size, kernel_end| {
        let plan = planned(&input(2 * GIB, 0), kernel(GpaRange::new(MIB, kernel_end), Some(size))).expect("a plan");
        let zeroed = plan.regions().iter().map(|region| region.flags.contains(RegionFlags::ZEROED));
        (plan.initramfs().expect("a place"), zeroed.collect::<Vec<_>>())
    };
    assert_eq!(placed(8 * MIB + 1, 64 * MIB), (GpaRange::of(504 * MIB - 4096, 8 * MIB + 1), vec![false, true]));
    assert_eq!(placed(448 * MIB, 64 * MIB), (GpaRange::new(64 * MIB, 512 * MIB), vec![false, true]));
    assert_eq!(placed(448 * MIB, 64 * MIB + 1), (GpaRange::of(ABOVE_4G, 448 * MIB), vec![false, false]));
}

#[test]
fn errors_name_the_thing_the_value_and_what_would_be_right() {
    let narrow = |size, holes| MemoryPlan::new(&input(size, holes), UNKNOWN, AddressWidth::reported(40));
    let small = |payload| planned(&input(GIB, 0), payload).map_err(|error| error.to_string());
    let cases = [
        (
            narrow(TIB, 0),
            "memory.size=1T: must be between 64M and 1044992M, which is what 40-bit physical addresses have room for",
        ),
        (
            narrow(TIB - 4 * GIB + 512 * MIB, 1),
            "memory.size=1044992M: must be between 64M and 1044864M, which is what 40-bit physical addresses have room for",
        ),
        (narrow(64 * GIB, 125), "study.holes=125: must be at most 124, the e820 map has no room for more"),
        (narrow(GIB, 4), "study.holes=4: must be fewer than the whole sections of 128M above 4 GiB, which are 4"),
    ];
    for (result, message) in cases {
        assert_eq!(result.map_err(|error| error.to_string()), Err(message.to_owned()));
    }

    assert!(narrow(TIB - 4 * GIB + 512 * MIB, 0).is_ok(), "the largest size that the message names");
    assert_eq!(
        small(kernel(GpaRange::new(16 * MIB, 600 * MIB), None)),
        Err("kernel: takes guest memory 0x1000000..0x25800000: must be inside 0x100000..0x20000000, the RAM for kernels that memory.size=1G gives".to_owned())
    );
    assert_eq!(
        small(kernel(GpaRange::new(16 * MIB, 32 * MIB), Some(GIB))),
        Err("initramfs: 1073741824 bytes: must be at most 515899392, the largest piece that the kernel leaves of memory.size=1G".to_owned())
    );
}

fn with_held(size: u64, held: u64) -> PlanInput {
    PlanInput { held, ..input(size, 0) }
}

/// The guest boots as if there was none: all that is said of it is one region behind the others.
#[test]
fn held_memory_changes_nothing_else() {
    for (size, held, start) in [
        (256 * MIB, SECTION_SIZE, 4 * GIB),
        (512 * MIB, TIB, 4 * GIB),
        (513 * MIB, TIB, 5 * GIB),
        (GIB + 512 * MIB, TIB, 5 * GIB),
        (64 * GIB, 64 * GIB, 68 * GIB),
        (65 * GIB, 64 * GIB, 72 * GIB),
    ] {
        let (without, with) = (plan(size, 0), planned(&with_held(size, held), UNKNOWN).expect("a plan"));
        assert_eq!(with.held(), Some(GpaRange::of(start, held)));
        assert_eq!((with.slots(), with.ram(), with.e820()), (without.slots(), without.ram(), without.e820()));
        assert_eq!((with.arenas(), with.backing()), (without.arenas(), without.backing()));
        let region = Region { base: start, length: held, node: 0, flags: RegionFlags::HELD };
        assert_eq!(with.regions(), [without.regions(), &[region]].concat());
        let table = with.hand_off().expect("a table");
        assert!(Table::parse(&table).expect("a valid table").regions().eq(with.regions().iter().copied()));
        let json = serde_json::to_value(MemoryMap(&with)).expect("JSON");
        assert_eq!(json["held"], serde_json::json!({"start": start, "end": start + held}));
        assert!(MemoryMap(&with).to_string().contains("more can be added while the VM runs"));
    }
}

#[test]
fn held_memory_ends_where_addresses_do() {
    let narrow = |held| MemoryPlan::new(&with_held(GIB, held), UNKNOWN, AddressWidth::reported(40));
    let room = TIB - 5 * GIB;
    assert!(narrow(room).is_ok());
    let said = "memory.max=1020G: must be at most 1020G, which is what 40-bit physical addresses have room for";
    let error = narrow(room + SECTION_SIZE).map_err(|error| error.to_string()).expect_err("too much");
    assert_eq!(error, said.replace("max=1020G", "max=1044608M"));
}

/// KVM takes no slot of 8 TiB. What the guest is told of them is one range.
#[test]
fn no_slot_is_too_large_for_kvm() {
    let largest = |plan: &MemoryPlan| plan.slots().iter().map(|slot| slot.range.length()).max();
    let plan = plan(9 * TIB + 3 * MIB, 0);
    assert_eq!(largest(&plan), Some(4 * TIB));
    assert_eq!(plan.ram().last().map(|range| range.length()), Some(8 * TIB + TIB + 3 * MIB - (GIB / 2)));
    assert_eq!(self::plan(4 * TIB, 3).slots().len(), 5, "holes cut it already");
    let more = |held| planned(&with_held(GIB, held), UNKNOWN).map(drop).map_err(|error| error.to_string());
    assert_eq!(more(4 * TIB), Ok(()));
    let said = "memory.max=4195456M: must be at most 4097G: a VM can get 4T more than it begins with";
    assert_eq!(more(4 * TIB + SECTION_SIZE), Err(said.to_owned()));
    let huge = PlanInput::new(MemorySize::try_from(u64::MAX - u64::MAX % MIB).expect("a valid size"));
    assert!(planned(&huge, UNKNOWN).is_err());
}

#[test]
fn the_map_as_json_says_the_same() {
    let input = PlanInput { prefault: Prefault::Arenas, ..input(GIB, 0) };
    let plan = planned(&input, kernel(GpaRange::new(MIB, 2 * MIB), None)).expect("a plan");
    let json = serde_json::to_value(MemoryMap(&plan)).expect("JSON");
    assert_eq!(json["size"], GIB);
    assert_eq!(
        json["slots"][1],
        serde_json::json!({
            "start": ABOVE_4G, "end": ABOVE_4G + 512 * MIB, "node": 0, "page_size": 4096, "host_numa_node": null
        })
    );
    assert_eq!(json["e820"][1], serde_json::json!({"start": 0xe0000, "end": MIB, "kind": "reserved"}));
    assert_eq!(json["hand_off"]["regions"][0]["flags"], serde_json::json!([]));
    assert_eq!(json["hand_off"]["arenas"][0]["end"], ABOVE_4G + 508 * MIB);
    assert_eq!(json["kernel"]["end"], 2 * MIB);
    assert_eq!((&json["hugepages"], &json["page_size"]), (&false.into(), &4096.into()));
    assert_eq!(
        json["host"]["prefault"],
        serde_json::json!([{"start": ABOVE_4G + 492 * MIB, "end": ABOVE_4G + 508 * MIB}])
    );
    assert_eq!(json["host"]["early"], serde_json::json!([{"start": MIB, "end": 2 * MIB}]));
    assert_eq!(json["host"]["ahead"][0], serde_json::json!({"start": ABOVE_4G, "end": ABOVE_4G + 10 * MIB}));
    // The kernel, the first section above 4 GiB, the arena, what is above it.
    assert_eq!(json["host"]["thp"].as_array().map(Vec::len), Some(4));
    assert!(json["initramfs"].is_null());
}
