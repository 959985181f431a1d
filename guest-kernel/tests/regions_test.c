// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own mm/memmap_regions.c, compiled for user space and given random
 * memory and random tables. Whatever the table says, each section with free
 * memory in it must be given out exactly once, in order, to one region.
 *
 *   memory  |####  ##|        |  ##  ##|########|    # is free
 *   table   |<- region 0 ---->|        |<- region 1 ...
 *   plan      0                 1        2           ordinals of sections
 */
#include "kernel_stubs.h"
#include "memmap_regions.c"

#define SECTIONS	64	/* in the zone that is made up for each round */
#define MAX_RANGES	128

struct range { unsigned long spfn, epfn; };

static struct range ranges[MAX_RANGES];
static unsigned int nr_ranges;
static struct memmap_region table[SECTIONS];
static unsigned int nr_table;
static bool out_of_memory;
static long checks;

#define CHECK(cond) do {						\
	checks++;							\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: failed: %s (round %d)\n",	\
			__FILE__, __LINE__, #cond, test_round);		\
		exit(1);						\
	}								\
} while (0)

static int test_round;

void *kzalloc(size_t size, int gfp)
{
	CHECK(gfp & __GFP_NOFAIL);
	return calloc(1, size);
}

void *kvcalloc(size_t n, size_t size, int gfp)
{
	return out_of_memory ? NULL : calloc(n, size);
}

void kvfree(const void *p)
{
	free((void *)p);
}

unsigned int memmap_handoff_nr_regions(void)
{
	return nr_table;
}

void memmap_handoff_get_region(unsigned int i, struct memmap_region *region)
{
	*region = table[i];
}

void __next_mem_pfn_range_in_zone(u64 *idx, struct zone *zone,
				  unsigned long *spfn, unsigned long *epfn)
{
	if (*idx >= nr_ranges) {
		*idx = U64_MAX;
		*spfn = -1UL;
		*epfn = 0;
		return;
	}
	*spfn = ranges[*idx].spfn;
	*epfn = ranges[*idx].epfn;
	++*idx;
}

static u64 rng = 88172645463325252ULL;

static unsigned long random_below(unsigned long n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % n;
}

/* Free ranges of any size, some of them several to a section. */
static void random_memory(const struct zone *zone)
{
	static const unsigned long sizes[] = { 4, 700, PAGES_PER_SECTION, 9 * PAGES_PER_SECTION };
	unsigned long pfn = zone->zone_start_pfn;

	nr_ranges = 0;
	while (nr_ranges < MAX_RANGES) {
		pfn += random_below(sizes[random_below(4)]) & ~(random_below(2) ? 0 : PAGES_PER_SECTION - 1);
		ranges[nr_ranges].spfn = pfn;
		pfn += 1 + random_below(sizes[random_below(4)]);
		if (pfn > zone->end_pfn)
			break;
		ranges[nr_ranges++].epfn = pfn;
		pfn++;
	}
}

/* Sorted, disjoint, no section shared, as the parser has it; of two nodes. */
static void random_table(const struct zone *zone)
{
	unsigned long section = random_below(4), length;

	nr_table = 0;
	if (random_below(4) == 0)
		return;
	while (nr_table < SECTIONS) {
		length = 1 + random_below(8);
		if (section + length > SECTIONS + 8)
			break;
		table[nr_table++] = (struct memmap_region) {
			.base = PFN_PHYS(zone->zone_start_pfn + section_nr_to_pfn(section)),
			.length = PFN_PHYS(section_nr_to_pfn(length)) -
				  (random_below(4) ? 0 : 4096 * random_below(1000)),
			.nid = random_below(8) ? zone->nid : 1 - zone->nid,
		};
		section += length + (random_below(2) ? random_below(5) : 0);
	}
}

static bool section_is_deferred(const struct memmap_plan *plan, unsigned long section)
{
	unsigned long start = section_nr_to_pfn(section);
	unsigned long end = start + PAGES_PER_SECTION;

	for (unsigned int i = 0; i < nr_ranges; i++)
		if (max(max(ranges[i].spfn, plan->first_pfn), start) <
		    min(ranges[i].epfn, end))
			return true;
	return false;
}

/* The region of the table that has a part of the section, or -1. */
static int table_region_of(const struct memmap_plan *plan, unsigned long section)
{
	int n = -1;

	for (unsigned int i = 0; i < nr_table; i++) {
		if (table[i].nid != zone_to_nid(plan->zone))
			continue;
		n++;
		if (region_first_section(&table[i]) <= section &&
		    section < region_end_section(&table[i]))
			return n;
	}
	return -1;
}

/* Walks all ordinals as a thread would: they must be just the deferred sections. */
static void check_plan(struct memmap_plan *plan, unsigned long first_section)
{
	unsigned long section = first_section, ordinal = 0;

	for (; section < first_section + SECTIONS; section++) {
		struct memmap_extent *e;
		int expected = table_region_of(plan, section);

		if (!section_is_deferred(plan, section))
			continue;
		CHECK(ordinal < plan->nr_sections);
		e = memmap_plan_find(plan, ordinal);
		CHECK(e >= plan->extents && e < plan->extents + plan->nr_extents);
		CHECK(e->first <= ordinal && ordinal < e[1].first);
		CHECK(e->start_pfn + section_nr_to_pfn(ordinal - e->first) ==
		      section_nr_to_pfn(section));
		CHECK(e->region < plan->nr_regions);
		CHECK(plan->regions[e->region].from_table == (expected >= 0));
		if (expected >= 0)
			CHECK(e->region == (unsigned int)expected);
		else
			CHECK(region_first_section(&plan->regions[e->region].region) <= section &&
			      section < region_end_section(&plan->regions[e->region].region));
		ordinal++;
	}
	CHECK(ordinal == plan->nr_sections);
}

/* Without memory there is one region with all sections, holes or not. */
static void check_whole(struct memmap_plan *plan)
{
	unsigned long first = pfn_to_section_nr(plan->first_pfn);

	if (plan->first_pfn >= zone_end_pfn(plan->zone)) {
		CHECK(plan->nr_sections == 0 && plan->nr_regions == 0);
		return;
	}
	CHECK(plan->nr_extents == 1 && plan->nr_regions == 1);
	CHECK(plan->nr_sections == pfn_to_section_nr(zone_end_pfn(plan->zone) - 1) + 1 - first);
	CHECK(memmap_plan_find(plan, plan->nr_sections - 1) == plan->extents);
	CHECK(plan->extents[0].start_pfn == section_nr_to_pfn(first));
	CHECK(plan->extents[1].first == plan->nr_sections);
}

static void one_round(void)
{
	unsigned long start = section_nr_to_pfn(random_below(1000));
	struct zone zone = { (int)random_below(2), start, start + section_nr_to_pfn(SECTIONS) };
	unsigned long first = start + section_nr_to_pfn(random_below(3));
	struct memmap_plan *plan;

	/* Also: nothing deferred at all, and from the middle of a section on. */
	if (random_below(16) == 0)
		first = -1UL;
	else if (random_below(4) == 0)
		first += random_below(PAGES_PER_SECTION);
	random_memory(&zone);
	random_table(&zone);
	out_of_memory = random_below(16) == 0;

	plan = memmap_plan_make(&zone, first);
	CHECK(plan->extents[plan->nr_extents].first == plan->nr_sections);
	if (out_of_memory)
		check_whole(plan);
	else
		check_plan(plan, pfn_to_section_nr(start));
	memmap_plan_done(plan);
	if (!out_of_memory)
		free(plan->regions);
	free(plan);
}

int main(void)
{
	for (test_round = 0; test_round < 20000; test_round++)
		one_round();
	printf("regions_test: %ld checks passed\n", checks);
	return 0;
}
