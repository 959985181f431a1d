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
#include "fake_memory.h"
#include "memmap_regions.c"

/* What was seen, so that a round that never has it is found. */
static long nr_mixed, nr_offline, nr_shared_zones, nr_memmap_only;

/* The region of the table that has a part of the section, or -1. */
static int table_region_of(const struct memmap_plan *plan, unsigned long section_nr)
{
	int n = -1;

	for (unsigned int i = 0; i < nr_table; i++) {
		if (table[i].nid != plan->nid)
			continue;
		n++;
		if (region_first_section(&table[i]) <= section_nr &&
		    section_nr < region_end_section(&table[i]))
			return n;
	}
	return -1;
}

/* What the plan has to make of a section, by looking at each of its pages. */
struct expected {
	bool planned, mixed;
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
	e.mixed = e.planned && (others || (e.zones & (e.zones - 1)));
	nr_shared_zones += !!(e.zones & (e.zones - 1));
	nr_memmap_only += e.planned && !free;
	return e;
}

static void check_region(struct memmap_plan *plan, unsigned long section_nr,
			 unsigned int region)
{
	int expected = table_region_of(plan, section_nr);

	CHECK(region < plan->nr_regions);
	CHECK(plan->regions[region].from_table == (expected >= 0));
	CHECK(plan->regions[region].region.nid == plan->nid);
	if (expected >= 0)
		CHECK(region == (unsigned int)expected);
	else
		CHECK(region_first_section(&plan->regions[region].region) <= section_nr &&
		      section_nr < region_end_section(&plan->regions[region].region));
}

/* A section that is in the plan, as the one with that ordinal. */
static void check_section(struct memmap_plan *plan, unsigned long ordinal,
			  unsigned long section_nr)
{
	struct memmap_extent *e;

	CHECK(ordinal < plan->nr_sections);
	e = memmap_plan_find(plan, ordinal);
	CHECK(e >= plan->extents && e < plan->extents + plan->nr_extents);
	CHECK(e->first <= ordinal && ordinal < e[1].first);
	CHECK(memmap_plan_pfn(plan, ordinal) == section_nr_to_pfn(section_nr));
	CHECK(memmap_plan_ordinal(plan, section_nr) == (long)ordinal);
	check_region(plan, section_nr, e->region);
}

/* Walks all sections as threads would: their ordinals must be just the deferred ones. */
static void check_sections(struct memmap_plan *plan)
{
	unsigned long first = pfn_to_section_nr(base_pfn), section, ordinal = 0;

	for (section = 0; section < SECTIONS; section++) {
		struct expected e = expect_section(plan->nid, section);

		if (!e.planned) {
			CHECK(memmap_plan_ordinal(plan, first + section) == -1);
			continue;
		}
		check_section(plan, ordinal, first + section);
		CHECK(plan->sections[ordinal].mixed == e.mixed);
		CHECK(!atomic_read(&plan->sections[ordinal].begun));
		ordinal++;
	}
	CHECK(ordinal == plan->nr_sections);
	CHECK(plan->extents[plan->nr_extents].first == ordinal);
	CHECK(memmap_plan_ordinal(plan, 0) == -1);
	CHECK(memmap_plan_ordinal(plan, first - 1) == -1);
	CHECK(memmap_plan_ordinal(plan, first + SECTIONS) == -1);
}

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

/* A zone's own ordinals follow those of the zone below; its free pages are counted. */
static void check_zones(struct memmap_plan *plan)
{
	unsigned long pages[MAX_NR_ZONES] = { 0 }, page, before = 0;
	int zid;

	for (page = 0; page < PAGES; page++)
		if (kinds[page] == FREE && is_planned(plan->nid, page))
			pages[zone_idx(zone_of(plan->nid, page))]++;
	for (zid = 0; zid < MAX_NR_ZONES; zid++) {
		struct memmap_zone *z = &plan->zones[zid];
		unsigned long nr;

		CHECK(atomic_long_read(&z->pages) == (long)pages[zid]);
		if (!z->end)
			continue;
		CHECK(atomic_long_read(&z->next) == (long)before && z->end >= before);
		for (nr = before; nr < z->end; nr++) {
			page = memmap_plan_pfn(plan, nr) - base_pfn;
			CHECK(expect_section(plan->nid, page / PAGES_PER_SECTION).zones & 1 << zid);
		}
		before = z->end;
	}
	CHECK(before == plan->nr_sections);
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

			offline |= e.planned && !e.mixed;
			nr_mixed += e.mixed;
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

		CHECK(!!plan == (NODE_DATA(nid)->first_deferred_pfn != ULONG_MAX));
		if (!plan)
			continue;
		CHECK(plan->nid == nid && plan->first_pfn == NODE_DATA(nid)->first_deferred_pfn);
		check_ranges(plan);
		check_sections(plan);
		check_zones(plan);
	}
	check_offline();
	forget_plans();
}

int main(void)
{
	for (test_round = 0; test_round < 2000; test_round++)
		one_round();
	CHECK(nr_mixed && nr_offline && nr_shared_zones && nr_memmap_only);
	printf("regions_test: %ld checks passed\n", checks);
	return 0;
}
