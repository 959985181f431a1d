/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random memory, a byte a page, and memblock's view of it.
 *
 *   kinds  |FFFF  FF|RR MMMM|  FFMMFF|    free, reserved, the memmap, holes
 *   nodes  |0000  00|00 0011|  110000|    in pieces, or one after another
 *   zones  |DMA|DMA32   |NORMAL   |MOV    of each node, cut anywhere
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include "kernel_stubs.h"
#include "memmap_regions.h"

#define SECTIONS	64UL		/* of each round's memory */
#define PAGES		(SECTIONS * PAGES_PER_SECTION)
#define NODES		3
#define MAX_ALLOCS	(NODES * 8)

enum kind { HOLE, FREE, RESERVED, MEMMAP };

static u8 kinds[PAGES], nodes[PAGES];
static unsigned long base_pfn;		/* of kinds[0]; aligned to sections */
static struct memmap_region table[SECTIONS + 8];
static unsigned int nr_table;
static pg_data_t test_nodes[NODES];
static struct mem_section test_sections[SECTIONS];
static struct memblock_region test_reserved[PAGES];
static void *allocs[MAX_ALLOCS];	/* to be freed with the round */
static unsigned int nr_allocs;
static bool ragged;			/* free ranges end within pages */
static bool elsewhere;			/* a node may have memory for another one's plan */
static u64 addressable_end;		/* last byte that can be in the direct mapping */
static long checks;
static int test_round;

struct test_memblock memblock = { .reserved.regions = test_reserved };
static unsigned long max_low_pfn;

/* Only parameters make them log something, and these tests give none. */
#define pr_fmt(fmt)			fmt
void test_log(const char *fmt, ...)
{
	abort();
}

#define NODE_DATA(nid)			(&test_nodes[nid])
#define N_MEMORY			0
#define num_node_state(s)		NODES
#define for_each_node_state(nid, s)	for (nid = (s); nid < NODES; nid++)
#define for_each_online_node(nid)	for_each_node_state(nid, N_MEMORY)
#define __pfn_to_section(pfn)		(&test_sections[((pfn) - base_pfn) / PAGES_PER_SECTION])

unsigned long global_zone_page_state(enum zone_stat_item item)
{
	unsigned long pages = 0;
	int nid, zid;

	for (nid = 0; nid < NODES; nid++)
		for (zid = 0; zid < MAX_NR_ZONES; zid++)
			pages += zone_page_state(&NODE_DATA(nid)->node_zones[zid], item);
	return pages;
}

/* May be used by several threads at once: only one of them gets to count wrong. */
#define CHECK(cond) do {						\
	__atomic_fetch_add(&checks, 1, __ATOMIC_RELAXED);		\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: failed: %s (round %d)\n",	\
			__FILE__, __LINE__, #cond, test_round);		\
		exit(1);						\
	}								\
} while (0)

static u64 rng = 88172645463325252ULL;

static unsigned long random_below(unsigned long n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng % n;
}

struct range { u64 start, end; };

static inline struct range mhp_get_pluggable_range(bool need_mapping)
{
	return (struct range) { 0, addressable_end };
}

unsigned int memmap_handoff_nr_regions(void)
{
	return nr_table;
}

void memmap_handoff_get_region(unsigned int i, struct memmap_region *region)
{
	*region = table[i];
}

/* The next pages of the node from @i on that @wanted takes, until the node changes. */
static bool next_pages(unsigned long *i, int node, bool (*wanted)(u8 kind),
		       unsigned long *end)
{
	while (*i < PAGES && !(wanted(kinds[*i]) && (node == MAX_NUMNODES || nodes[*i] == node)))
		++*i;
	for (*end = *i; *end < PAGES && wanted(kinds[*end]) && nodes[*end] == nodes[*i]; )
		++*end;
	return *i < PAGES;
}

static bool is_memory(u8 kind)
{
	return kind != HOLE;
}

static bool is_free(u8 kind)
{
	return kind == FREE;
}

bool test_next_ram(u64 *i, int node, unsigned long *start_pfn,
		   unsigned long *end_pfn, int *nid)
{
	unsigned long end;

	if (!next_pages(i, node, is_memory, &end))
		return false;
	*start_pfn = base_pfn + *i;
	*end_pfn = base_pfn + end;
	if (nid)
		*nid = nodes[*i];
	*i = end;
	return true;
}

bool test_next_free(u64 *i, int node, phys_addr_t *start, phys_addr_t *end)
{
	unsigned long end_page;

	if (!next_pages(i, node, is_free, &end_page))
		return false;
	/* A part of a page is not free memory. */
	*start = PFN_PHYS(base_pfn + *i) - (ragged ? PAGE_SIZE / 2 : 0);
	*end = PFN_PHYS(base_pfn + end_page) + (ragged ? PAGE_SIZE / 4 : 0);
	*i = end_page;
	return true;
}

/* Reserved regions, merged as memblock does, whatever nodes they are on. */
static void list_reserved(void)
{
	unsigned long page, end;

	memblock.reserved.cnt = 0;
	for (page = 0; page < PAGES; page = end) {
		for (end = page + 1; end < PAGES && kinds[end] == kinds[page]; )
			end++;
		if (kinds[page] != RESERVED && kinds[page] != MEMMAP)
			continue;
		test_reserved[memblock.reserved.cnt++] = (struct memblock_region) {
			PFN_PHYS(base_pfn + page), PFN_PHYS(end - page), kinds[page] == MEMMAP,
		};
	}
}

/* Take pages from the node's highest range that has them; from within, if @cut. */
static bool take_pages(unsigned long nr, int node, bool cut)
{
	unsigned long i, end, found = PAGES;

	for (i = 0; next_pages(&i, node, is_free, &end); i = end)
		if (end - i >= nr + 2 * cut)
			found = end - nr - cut;
	if (found == PAGES)
		return false;
	memset(kinds + found, RESERVED, nr);
	list_reserved();
	return true;
}

/* A block of its own for the sanitizer; the pages that it would be in are taken. */
void *memblock_alloc_node(phys_addr_t size, phys_addr_t align, int nid)
{
	unsigned long nr = PFN_UP(size);
	int from = elsewhere && random_below(4) == 0 ? MAX_NUMNODES : nid;

	if (!take_pages(nr, from, random_below(4) == 0))
		take_pages(nr, elsewhere ? MAX_NUMNODES : nid, false);
	CHECK(nr_allocs < MAX_ALLOCS);
	return allocs[nr_allocs++] = calloc(1, size);
}

/* Pieces of any kind and size, some of them several to a section. */
static void random_kinds(void)
{
	static const unsigned long sizes[] = {
		4, PAGES_PER_SECTION / 3, PAGES_PER_SECTION, 9 * PAGES_PER_SECTION,
	};
	static const u8 likely[] = { HOLE, FREE, FREE, FREE, RESERVED, MEMMAP };
	unsigned long page = 0, end;

	while (page < PAGES) {
		end = page + 1 + random_below(sizes[random_below(4)]);
		if (random_below(2))
			end = ALIGN(end, PAGES_PER_SECTION);
		end = min(end, PAGES);
		memset(kinds + page, likely[random_below(sizeof(likely))], end - page);
		page = end;
	}
}

/* One node after the other or in turns, some of them with no memory at all. */
static void random_nodes(void)
{
	bool turns = random_below(4) == 0;
	unsigned long page = 0, end;
	int nid = 0;

	for (page = 0; page < PAGES; page = end) {
		end = page + 1 + random_below(turns ? PAGES / 8 : PAGES);
		if (random_below(2))
			end = ALIGN(end, PAGES_PER_SECTION);
		end = nid == NODES - 1 && !turns ? PAGES : min(end, PAGES);
		memset(nodes + page, nid, end - page);
		nid = turns ? random_below(NODES) : nid + 1;
	}
}

/* The same bounds for all nodes, at blocks: so sections may be of several zones. */
static void random_zones(void)
{
	unsigned long bounds[MAX_NR_ZONES + 1] = { [MAX_NR_ZONES] = PAGES };
	int nid, zid;

	for (zid = 1; zid < MAX_NR_ZONES; zid++) {
		unsigned long to = random_below(2) ? MAX_ORDER_NR_PAGES : PAGES_PER_SECTION;

		bounds[zid] = ALIGN(bounds[zid - 1] + random_below(PAGES / 2), to);
		bounds[zid] = min(bounds[zid], PAGES);
	}
	for (nid = 0; nid < NODES; nid++) {
		pg_data_t *node = NODE_DATA(nid);

		for (zid = 0; zid < MAX_NR_ZONES; zid++) {
			struct zone *z = &node->node_zones[zid];
			unsigned long start = max(node->node_start_pfn, base_pfn + bounds[zid]);
			unsigned long end = min(node->end_pfn, base_pfn + bounds[zid + 1]);

			*z = (struct zone) { nid, zid };
			if (start < end) {
				z->zone_start_pfn = start;
				z->end_pfn = end;
			}
		}
	}
}

/* The first section of a node is never deferred, and what is begins with a section. */
static void random_deferred(int nid)
{
	pg_data_t *node = NODE_DATA(nid);
	unsigned long i = 0, start, end;
	unsigned long first;

	node->node_start_pfn = node->end_pfn = 0;
	node->first_deferred_pfn = ULONG_MAX;
	while (test_next_ram(&i, nid, &start, &end, NULL)) {
		if (!node->end_pfn)
			node->node_start_pfn = start;
		node->end_pfn = end;
	}
	first = section_nr_to_pfn(pfn_to_section_nr(node->node_start_pfn) + 1 + random_below(3));
	if (first < node->end_pfn && random_below(16))
		node->first_deferred_pfn = first;
}

/* Sorted, disjoint, no section shared, as the parser has it; of any node. */
static void random_table(void)
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
			.base = PFN_PHYS(base_pfn + section_nr_to_pfn(section)),
			.length = PFN_PHYS(section_nr_to_pfn(length)) -
				  (random_below(4) ? 0 : PAGE_SIZE * random_below(PAGES_PER_SECTION)),
			.nid = random_below(4) ? nodes[min(section_nr_to_pfn(section), PAGES - 1)] :
						 random_below(NODES),
		};
		section += length + (random_below(2) ? random_below(5) : 0);
	}
}

#ifdef MEMMAP_HANDOFF_REGION_HELD
/* Behind all of that, of any node; some of it is too high, or more than there is room for. */
static void random_held(void)
{
	unsigned long section = SECTIONS + 8 + random_below(4), length;
	int n, nid;

	for (n = random_below(8); n; n--) {
		length = 1 + random_below(8);
		table[nr_table++] = (struct memmap_region) {
			.base = PFN_PHYS(base_pfn + section_nr_to_pfn(section)),
			.length = PFN_PHYS(section_nr_to_pfn(length)),
			.nid = random_below(NODES),
			.flags = MEMMAP_HANDOFF_REGION_HELD,
		};
		section += length + random_below(3);
	}
	addressable_end = random_below(2) ? U64_MAX :
		PFN_PHYS(base_pfn + section_nr_to_pfn(SECTIONS + 8 + random_below(40))) - 1;
	for (nid = 0; nid < NODES; nid++)
		NODE_DATA(nid)->node_present_pages = 1 + random_below(random_below(2) ? 20 : PAGES);
}
#endif

static void random_memory(void)
{
	unsigned long i;
	int nid;

	base_pfn = section_nr_to_pfn(1 + random_below(1000));
	max_low_pfn = base_pfn + PAGES;
	random_kinds();
	random_nodes();
	for (nid = 0; nid < NODES; nid++)
		random_deferred(nid);
	random_zones();
	random_table();
#ifdef MEMMAP_HANDOFF_REGION_HELD
	random_held();
#endif
	list_reserved();
	ragged = random_below(2);
	elsewhere = random_below(2);
	for (i = 0; i < SECTIONS; i++)
		test_sections[i].section_mem_map = SECTION_IS_ONLINE;
}

/* Whether that page is for the plan to set up. */
static bool is_planned(int nid, unsigned long page)
{
	return (kinds[page] == FREE || kinds[page] == MEMMAP) && nodes[page] == nid &&
	       base_pfn + page >= NODE_DATA(nid)->first_deferred_pfn;
}

static struct zone *zone_of(int nid, unsigned long page)
{
	struct zone *z = NODE_DATA(nid)->node_zones;

	while (base_pfn + page < z->zone_start_pfn || base_pfn + page >= z->end_pfn)
		z++;
	return z;
}

static bool is_online(unsigned long section)
{
	return READ_ONCE(test_sections[section].section_mem_map) & SECTION_IS_ONLINE;
}

static inline bool online_section_nr(unsigned long nr)
{
	return is_online(nr - pfn_to_section_nr(base_pfn));
}

static void forget_plans(void)
{
	while (nr_allocs)
		free(allocs[--nr_allocs]);
	memset(memmap_plans, 0, sizeof(memmap_plans));
}

#endif /* FAKE_MEMORY_H */
