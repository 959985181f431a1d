// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own mm/memmap_regions.c, compiled for user space and given random
 * memory and random tables. Whatever the table says, each section with something
 * to set up in it must be given out exactly once, in order, to one region.
 *
 *   memory  |####  ##|        |  ##  ##|########|    # is free, or the memmap
 *   table   |<- region 0 ---->|        |<- region 1 ...
 *   plan      0                 1        2           ordinals of sections
 */
/* Small, so that each page can be looked at. */
#define PAGES_PER_SECTION	64UL
#define MAX_ORDER_NR_PAGES	8UL
#define CONFIG_MEMMAP_HELD	1
#include "fake_memory.h"
#include "memmap_regions.c"

/* What was seen, so that a round that never has it is found. */
static long nr_shared, nr_offline, nr_shared_zones, nr_memmap_only;
static long nr_held, nr_too_high, nr_too_much;

/* The region of the table that has a part of the section, or -1. */
static int table_region_of(const struct memmap_plan *plan, unsigned long section_nr)
{
	for (unsigned int i = 0; i < nr_table; i++) {
		if (table[i].nid != plan->nid)
			continue;
		if (pfn_to_section_nr(PHYS_PFN(table[i].base)) <= section_nr &&
		    section_nr <= pfn_to_section_nr(PHYS_PFN(table[i].base + table[i].length - 1)))
			return i;
	}
	return -1;
}

/* What the plan has to make of a section, by looking at each of its pages. */
struct expected {
	bool planned, shared;
	unsigned int zones;	/* a bit each */
};

static struct expected expect_section(int nid, unsigned long section)
{
	unsigned long page = section_nr_to_pfn(section), end = page + PAGES_PER_SECTION;
	bool free = false, others = false;
	struct expected e = { 0 };

	for (; page < end; page++) {
		others |= kinds[page] != HOLE && nodes[page] != nid;
		if (!is_planned(nid, page))
			continue;
		e.zones |= 1 << zone_idx(zone_of(nid, page));
		free |= kinds[page] == FREE;
	}
	e.planned = e.zones;
	e.shared = e.planned && others;
	nr_shared_zones += !!(e.zones & (e.zones - 1));
	nr_memmap_only += e.planned && !free;
	return e;
}

/* A section that is in the plan, as the one with that ordinal. */
static void check_section(struct memmap_plan *plan, unsigned long ordinal,
			  unsigned long section_nr)
{
	struct memmap_extent *e = plan->extents;

	CHECK(ordinal < plan->nr_sections);
	while (e[1].first <= ordinal)
		e++;
	CHECK(e < plan->extents + plan->nr_extents);
	CHECK(section_nr == e->section + ordinal - e->first);
	CHECK(e->entry == table_region_of(plan, section_nr));
	CHECK(memmap_plan_pfn(plan, ordinal) == section_nr_to_pfn(section_nr));
	CHECK(memmap_plan_ordinal(plan, section_nr_to_pfn(section_nr)) == (long)ordinal);
	CHECK(memmap_plan_ordinal(plan, section_nr_to_pfn(section_nr + 1) - 1) == (long)ordinal);
}

/* No extent could have been one with the next. */
static void check_extents(struct memmap_plan *plan)
{
	struct memmap_extent *e;

	for (e = plan->extents; e + 1 < plan->extents + plan->nr_extents; e++)
		CHECK(e->section + e[1].first - e->first != e[1].section || e->entry != e[1].entry);
}

/* Walks all sections as threads would: their ordinals must be just the deferred ones. */
static void check_sections(struct memmap_plan *plan)
{
	unsigned long first = pfn_to_section_nr(base_pfn), section, ordinal = 0;

	for (section = 0; section < SECTIONS; section++) {
		struct expected e = expect_section(plan->nid, section);

		if (!e.planned) {
			CHECK(memmap_plan_ordinal(plan, section_nr_to_pfn(first + section)) == -1);
			continue;
		}
		check_section(plan, ordinal, first + section);
		CHECK(plan->sections[ordinal].shared == e.shared);
		CHECK(!plan->sections[ordinal].blocks);
		ordinal++;
	}
	CHECK(ordinal == plan->nr_sections);
	CHECK(memmap_plan_ordinal(plan, 0) == -1);
	CHECK(memmap_plan_ordinal(plan, base_pfn - 1) == -1);
	CHECK(memmap_plan_ordinal(plan, base_pfn + PAGES) == -1);
}

#ifdef MEMMAP_HANDOFF_REGION_HELD
/* What is said of a held region that the plan has, or does not have. */
static void check_held_region(struct memmap_plan *plan, const struct memmap_region *r, long ordinal)
{
	unsigned long pfn = PHYS_PFN(r->base), end = PHYS_PFN(r->base + r->length);

	for (; pfn < end; pfn += PAGES_PER_SECTION) {
		CHECK(memmap_plan_held_ordinal(plan, pfn) == ordinal);
		CHECK(memmap_plan_ordinal(plan, pfn) == -1);
		if (ordinal < 0)
			continue;
		CHECK(plan->sections[ordinal].blocks == BLOCKS_PER_SECTION);
		CHECK(memmap_plan_pfn(plan, ordinal) == pfn);
		ordinal++;
	}
}

/* Held regions come after all others, whole, until one is too much; nothing is to do in any. */
static unsigned long check_held(int nid)
{
	unsigned long room = PFN_PHYS(NODE_DATA(nid)->node_present_pages) / 128 /
			     sizeof(struct memmap_section);
	struct memmap_plan *plan = memmap_plans[nid];
	unsigned long sections = 0, nr, i;
	bool full = false;

	for (i = 0; i < nr_table; i++) {
		const struct memmap_region *r = &table[i];
		bool too_high = r->base + r->length - 1 > addressable_end;

		if (r->nid != nid || !(r->flags & MEMMAP_HANDOFF_REGION_HELD))
			continue;
		nr = PHYS_PFN(r->length) / PAGES_PER_SECTION;
		full |= !too_high && sections + nr > room;
		nr_too_high += too_high;
		nr_too_much += full;
		if (plan)
			check_held_region(plan, r, too_high || full ? -1 : plan->nr_sections + sections);
		if (!too_high && !full)
			sections += nr;
	}
	nr_held += sections;
	if (plan)
		CHECK(plan->nr_planned == plan->nr_sections + sections);
	return sections;
}
#else
static unsigned long check_held(int nid)
{
	nr_held = nr_too_high = nr_too_much = 1;
	return 0;
}
#endif

/* Ranges are sorted and disjoint, each of one zone, and just what is deferred. */
static void check_ranges(struct memmap_plan *plan)
{
	const struct memmap_range *r = plan->ranges, *end = r + plan->nr_ranges;
	unsigned long page;

	for (page = 0; page < PAGES; page++) {
		unsigned long pfn = base_pfn + page;

		if (r < end && pfn >= r->end_pfn) {
			r++;
			CHECK(r == end || (r->start_pfn >= pfn && r->start_pfn < r->end_pfn));
		}
		CHECK((r < end && pfn >= r->start_pfn) == is_planned(plan->nid, page));
		if (!is_planned(plan->nid, page))
			continue;
		CHECK(r->zone == zone_of(plan->nid, page));
		CHECK(r->reserved == (kinds[page] == MEMMAP));
	}
	/* The last one may end where memory does. */
	CHECK(r == end || r == end - 1);
}

/* A zone's ordinals are from its first section to its last; its free pages are counted. */
static void check_zones(struct memmap_plan *plan)
{
	unsigned long pages[MAX_NR_ZONES] = { 0 }, sections = 0, page, nr;
	int zid;

	for (page = 0; page < PAGES; page++)
		if (kinds[page] == FREE && is_planned(plan->nid, page))
			pages[zone_idx(zone_of(plan->nid, page))]++;
	for (zid = 0; zid < MAX_NR_ZONES; zid++) {
		struct memmap_zone *z = &plan->zones[zid];
		struct zone *zone = &NODE_DATA(plan->nid)->node_zones[zid];

		CHECK(zone_deferred_pages(zone) == pages[zid]);
		CHECK(zone_page_state(zone, NR_FREE_PAGES) == pages[zid]);
		CHECK(atomic_long_read(&zone->managed_pages) == (long)pages[zid]);
		for (nr = 0; nr < plan->nr_sections; nr++) {
			page = memmap_plan_pfn(plan, nr) - base_pfn;
			CHECK(!!(expect_section(plan->nid, page / PAGES_PER_SECTION).zones & 1 << zid) ==
			      (z->next <= nr && nr < z->end));
		}
		sections += z->end - z->next;
	}
	CHECK(sections >= plan->nr_sections);
}

/* Only sections that some plan has for itself are offline. */
static void check_offline(void)
{
	unsigned long section;
	int nid;

	for (section = 0; section < SECTIONS; section++) {
		bool offline = false;

		for (nid = 0; nid < NODES; nid++) {
			struct expected e = expect_section(nid, section);

			offline |= e.planned && !e.shared;
			nr_shared += e.shared;
		}
		CHECK(is_online(section) == !offline);
		nr_offline += offline;
	}
}

static void one_round(void)
{
	int nid;

	random_memory();
	memmap_plan_all();
	for (nid = 0; nid < NODES; nid++) {
		struct memmap_plan *plan = memmap_plans[nid];
		unsigned long held = check_held(nid);

		CHECK(!!plan == (NODE_DATA(nid)->first_deferred_pfn != ULONG_MAX || held));
		if (!plan)
			continue;
		CHECK(plan->nid == nid && plan->first_pfn == NODE_DATA(nid)->first_deferred_pfn);
		check_ranges(plan);
		check_sections(plan);
		check_extents(plan);
		check_zones(plan);
		CHECK(plan->extents[plan->nr_extents].first == plan->nr_sections + held);
	}
	check_offline();
	forget_plans();
}

int main(void)
{
	for (test_round = 0; test_round < 2000; test_round++)
		one_round();
	CHECK(nr_shared && nr_offline && nr_shared_zones && nr_memmap_only);
	CHECK(nr_held && nr_too_high && nr_too_much);
	printf("regions_test: %ld checks passed\n", checks);
	return 0;
}
