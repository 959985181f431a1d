// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own mm/memmap_fill.c on the plans of mm/memmap_regions.c, with
 * threads that do all at once what CPUs do: grow zones, ensure ranges, fill nodes.
 *
 * What is known of a page is a plain byte. So the thread sanitizer, under which
 * this runs, finds pages that are set up twice at once, and finds those who go on
 * before what others have set up is theirs to see.
 */
#define PAGES_PER_SECTION	256UL
#define MAX_ORDER_NR_PAGES	8UL
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include "fill_stubs.h"
#include "fake_memory.h"
#include "memmap_regions.c"
#include "memmap_fill.c"

bool deferred_pages = true;

/* How far a page has got: memory up to FREED, the memmap's own up to SET_UP. */
enum progress { UNTOUCHED, SET_UP, FREED };
static u8 progress[PAGES];

/* Written once, with the struct page: whoever is told that it is ready may look at it. */
static u8 written[PAGES];

static long blocks_filled;		/* calls of memmap_block_filled() */
static long lists_asked, blocks_listed;	/* by the page allocator, and what came of it, in all rounds */
enum system_states system_state;

/* A thread that stops wherever it may be preempted, until all the others are done. */
static __thread bool dawdles;
static __thread bool irqs_off;
static __thread int blocks_locked;	/* that were set up since */
static __thread u64 thread_rng;
static bool others_done;
static int dawdling;			/* threads that have stopped */
static long total_dawdled, total_slow;

static unsigned long thread_random(unsigned long n)
{
	thread_rng = thread_rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (thread_rng >> 33) % n;
}

/* Wherever interrupts are enabled, something else may run for any time. */
static void preempt_point(void)
{
	CHECK(!irqs_off);
	if (dawdles && thread_random(16) == 0 && !READ_ONCE(others_done)) {
		__atomic_fetch_add(&dawdling, 1, __ATOMIC_RELAXED);
		while (!READ_ONCE(others_done))
			usleep(100);
	}
	if (thread_random(8) == 0)
		sched_yield();
}

/* Interrupts are off as long as a lock is held: a block's time, and only one lock. */
static void locked(void)
{
	CHECK(!irqs_off);
	irqs_off = true;
	blocks_locked = 0;
}

bool test_trylock(spinlock_t *lock)
{
	int unlocked = 0;

	preempt_point();
	if (!__atomic_compare_exchange_n(&lock->v, &unlocked, 1, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return false;
	locked();
	return true;
}

/* Never for one who may be preempted: those who wait here would hang with it. */
void test_lock(spinlock_t *lock)
{
	static long turns;
	int unlocked = 0;

	preempt_point();
	while (!__atomic_compare_exchange_n(&lock->v, &unlocked, 1, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED)) {
		CHECK(__atomic_add_fetch(&turns, 1, __ATOMIC_RELAXED) < 20 * 1000 * 1000);
		__atomic_fetch_add(&total_slow, 1, __ATOMIC_RELAXED);
		unlocked = 0;
		sched_yield();
	}
	locked();
}

void test_unlock(spinlock_t *lock)
{
	CHECK(irqs_off && blocks_locked <= 1);
	irqs_off = false;
	__atomic_store_n(&lock->v, 0, __ATOMIC_RELEASE);
	preempt_point();
}

void cond_resched(void)
{
	preempt_point();
}

void memmap_block_filled(void)
{
	CHECK(irqs_off);
	blocks_locked++;
	__atomic_fetch_add(&blocks_filled, 1, __ATOMIC_RELAXED);
}

/* All pages of [pfn, end_pfn) make the same step. */
static void step(struct zone *zone, unsigned long pfn, unsigned long end_pfn,
		 enum kind kind, enum progress from)
{
	CHECK(irqs_off);
	CHECK(pfn < end_pfn);
	for (; pfn < end_pfn; pfn++) {
		unsigned long page = pfn - base_pfn;

		CHECK(kinds[page] == kind);
		CHECK(!zone || (is_planned(zone->nid, page) && zone == zone_of(zone->nid, page)));
		CHECK(progress[page] == from);
		progress[page]++;
	}
}

static bool in_one_block(unsigned long pfn, unsigned long end_pfn)
{
	return pfn / MAX_ORDER_NR_PAGES == (end_pfn - 1) / MAX_ORDER_NR_PAGES;
}

static bool section_is_shared(int nid, unsigned long pfn)
{
	struct memmap_plan *plan = memmap_plans[nid];

	return plan->sections[memmap_plan_ordinal(plan, pfn)].shared;
}

/* Nobody may look at struct pages while they are set up, but where others are. */
static void check_offline(struct zone *zone, unsigned long pfn)
{
	CHECK(is_online((pfn - base_pfn) / PAGES_PER_SECTION) == section_is_shared(zone->nid, pfn));
}

void init_reserved_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn)
{
	CHECK(in_one_block(pfn, end_pfn));
	check_offline(zone, pfn);
	memset(written + (pfn - base_pfn), 1, end_pfn - pfn);
	step(zone, pfn, end_pfn, MEMMAP, UNTOUCHED);
}

void init_deferred_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn)
{
	CHECK(in_one_block(pfn, end_pfn));
	check_offline(zone, pfn);
	memset(written + (pfn - base_pfn), 1, end_pfn - pfn);
	step(zone, pfn, end_pfn, FREE, UNTOUCHED);
}

/* All of the node's pages around @pfn are at least that far. */
static void check_around(int nid, unsigned long pfn, unsigned long size)
{
	unsigned long page = (pfn - base_pfn) / size * size, end = page + size;

	for (; page < end; page++)
		if (is_planned(nid, page))
			CHECK(progress[page] >= SET_UP);
}

/* Freeing looks at neighbours. The last block's pages are not had before the section is online. */
void free_deferred_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn)
{
	CHECK(in_one_block(pfn, end_pfn));
	/* They may be in use at once, and looked for by number. */
	CHECK(is_online((pfn - base_pfn) / PAGES_PER_SECTION) || memmap_pfn_ready(pfn));
	check_around(zone->nid, pfn, MAX_ORDER_NR_PAGES);
	if (pfn / MAX_ORDER_NR_PAGES % BLOCKS_PER_SECTION == BLOCKS_PER_SECTION - 1)
		CHECK(is_online((pfn - base_pfn) / PAGES_PER_SECTION));
	else
		check_offline(zone, pfn);
	step(zone, pfn, end_pfn, FREE, SET_UP);
	zone_deferred_pages_add(zone, pfn - end_pfn);
}

/* As if freed, but nobody else sees them. Not every block is one for the list. */
int list_deferred_pages(struct zone *zone, unsigned long start_pfn, unsigned int order,
			struct list_head *list)
{
	CHECK(!order && list);
	if (thread_random(4) == 0)
		return 0;
	free_deferred_pages(zone, start_pfn, start_pfn + MAX_ORDER_NR_PAGES);
	__atomic_fetch_add(&blocks_listed, 1, __ATOMIC_RELAXED);
	return MAX_ORDER_NR_PAGES;
}

/* What others have in their lists does not keep the zone from growing. */
bool pcplist_has_movable(struct zone *zone, unsigned int order)
{
	return false;
}

/* The list may be full, or another's at the moment. */
bool grow_pcplist(struct zone *zone, unsigned int order, unsigned int blocks)
{
	struct list_head list;
	int listed;

	if (thread_random(2))
		return false;
	__atomic_fetch_add(&lists_asked, 1, __ATOMIC_RELAXED);
	CHECK(system_state == SYSTEM_RUNNING);
	if (!memmap_grow_list(zone, order, &list, &listed)) {
		CHECK(!listed);
		return false;
	}
	CHECK(listed == 0 || listed == (int)MAX_ORDER_NR_PAGES);
	return true;
}

static bool is_ready(int nid, unsigned long page)
{
	return !is_planned(nid, page) || progress[page] == (kinds[page] == FREE ? FREED : SET_UP);
}

/* All of a section's pages are there for whoever has been told so. */
static void check_done(int nid, unsigned long section)
{
	unsigned long page = section_nr_to_pfn(section), end = page + PAGES_PER_SECTION;

	CHECK(is_online(section));
	for (; page < end; page++)
		CHECK(is_ready(nid, page));
}

#include "fake_padata.h"

/* What a thread of a round does. */
struct worker {
	pthread_t thread;
	void (*work)(int nid);
	int nid;
	u64 seed;
	bool dawdles;
};

static void *run_worker(void *arg)
{
	struct worker *w = arg;

	thread_rng = w->seed;
	dawdles = w->dawdles;
	w->work(w->nid);
	return NULL;
}

/* Allocate without end: about as often as there is a block, but no zone is left behind. */
static void grow_node(int nid)
{
	struct memmap_plan *plan = memmap_plans[nid];
	int zid = thread_random(MAX_NR_ZONES), i;

	for (i = 0; i < MAX_NR_ZONES; i++, zid = (zid + 1) % MAX_NR_ZONES) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[zid];
		unsigned long grown = 0;

		while (memmap_grow_zone(zone, 0))
			CHECK(++grown <= 1000 * BLOCKS_PER_SECTION * plan->nr_sections);
		CHECK(zone_deferred_pages(zone) == 0);
	}
}

/* A few allocations only. */
static void grow_a_little(int nid)
{
	int i;

	for (i = 0; i < 8; i++) {
		struct zone *zone = &NODE_DATA(nid)->node_zones[thread_random(MAX_NR_ZONES)];

		if (!memmap_grow_zone(zone, 0))
			CHECK(zone_deferred_pages(zone) == 0);
	}
}

/* Use pages from anywhere, of any node. */
static void ensure_ranges(int nid)
{
	int i;

	for (i = 0; i < 8; i++) {
		unsigned long page = thread_random(PAGES);
		unsigned long end = page + 1 + thread_random(min(PAGES - page, 3 * PAGES_PER_SECTION));
		unsigned long section = page / PAGES_PER_SECTION;

		__memmap_ensure(base_pfn + page, base_pfn + end);
		for (; section <= (end - 1) / PAGES_PER_SECTION; section++)
			for (nid = 0; nid < NODES; nid++)
				check_done(nid, section);
	}
}

static void check_node_done(int nid)
{
	unsigned long section;

	for (section = 0; section < SECTIONS; section++)
		if (memmap_plan_ordinal(memmap_plans[nid], base_pfn + section_nr_to_pfn(section)) >= 0)
			check_done(nid, section);
}

static void fill_node(int nid)
{
#ifdef MEMMAP_HANDOFF_REGION_HELD
	memmap_fill_node(memmap_plans[nid], 0, thread_random(2));
#else
	memmap_fill_node(memmap_plans[nid], thread_random(2));
#endif
	check_node_done(nid);
}

static void ensure_all(int nid)
{
	memmap_ensure_all();
	for (nid = 0; nid < NODES; nid++)
		if (memmap_plans[nid])
			check_node_done(nid);
}

#define MAX_WORKERS	8
static struct worker workers[MAX_WORKERS];
static int nr_workers;

static void start(void (*work)(int nid), int nid, bool dawdles)
{
	struct worker *w = &workers[nr_workers++];

	*w = (struct worker) { .work = work, .nid = nid, .seed = random_below(1 << 30), .dawdles = dawdles };
	CHECK(!pthread_create(&w->thread, NULL, run_worker, w));
}

static void join(bool dawdlers)
{
	int i;

	for (i = 0; i < nr_workers; i++)
		if (workers[i].dawdles == dawdlers)
			CHECK(!pthread_join(workers[i].thread, NULL));
}

static int random_plan(void)
{
	int nid;

	do
		nid = random_below(NODES);
	while (!memmap_plans[nid]);
	return nid;
}

/* All that was deferred is there, once, and counted. */
static void check_all(void)
{
	long sections = 0;
	unsigned long page;
	int nid, zid;

	for (page = 0; page < PAGES; page++)
		CHECK(is_planned(nodes[page], page) ? is_ready(nodes[page], page) :
		      progress[page] == UNTOUCHED);
	for (nid = 0; nid < NODES; nid++) {
		struct memmap_plan *plan = memmap_plans[nid];
		long free[MAX_NR_ZONES] = { 0 };

		if (!plan)
			continue;
		for (page = 0; page < PAGES; page++)
			if (is_planned(nid, page) && kinds[page] == FREE)
				free[zone_idx(zone_of(nid, page))]++;
		for (zid = 0; zid < MAX_NR_ZONES; zid++) {
			struct zone *zone = &NODE_DATA(nid)->node_zones[zid];

			CHECK(atomic_long_read(&zone->managed_pages) == free[zid]);
			CHECK(zone_deferred_pages(zone) == 0);
		}
		CHECK(atomic_long_read(&plan->filled) == (long)plan->nr_sections);
		sections += plan->nr_sections;
	}
	CHECK(nr_deferred_pages() == 0);
	CHECK(sections * (long)BLOCKS_PER_SECTION == blocks_filled);
}

static unsigned long expect_deferred(void)
{
	unsigned long page, pages = 0;

	for (page = 0; page < PAGES; page++)
		pages += kinds[page] == FREE && is_planned(nodes[page], page);
	return pages;
}

/* Before anyone sets up more: a section that is not done is of its pages' zone, any other of none. */
static void check_deferred_zones(void)
{
	unsigned long page;

	for (page = 0; page < PAGES; page++) {
		struct zone *zone = memmap_deferred_zone(base_pfn + page);

		CHECK(!zone || !is_online(page / PAGES_PER_SECTION));
		if (is_planned(nodes[page], page))
			CHECK(zone == (is_online(page / PAGES_PER_SECTION) ? NULL : zone_of(nodes[page], page)));
	}
}

/* Look at struct pages by number, and find out what a zone spans: what is not deferred is online, and all of it there. */
static void look_for_zones(int nid)
{
	int i;

	for (i = 0; i < 64; i++) {
		unsigned long page = thread_random(PAGES);

		nid = nodes[page];
		if (!is_planned(nid, page))
			continue;
		if (memmap_pfn_ready(base_pfn + page))
			CHECK(written[page]);
		if (!memmap_deferred_zone(base_pfn + page))
			check_done(nid, page / PAGES_PER_SECTION);
	}
}

/* Before anyone else: sections that more than one node has a part of. */
static void fill_shared(void)
{
	unsigned long nr;
	int nid;

	memmap_fill_shared();
	for (nid = 0; nid < NODES; nid++)
		for (nr = 0; memmap_plans[nid] && nr < memmap_plans[nid]->nr_sections; nr++)
			CHECK(is_done(&memmap_plans[nid]->sections[nr]) == memmap_plans[nid]->sections[nr].shared);
}

/*
 * Some dawdle: threads of padata, preempted for good in the middle of a section or
 * right before one. The others have to get along without.
 */
static void start_all(void)
{
	static void (*const urgent[])(int) = { grow_node, grow_node, grow_a_little, ensure_ranges, ensure_all, look_for_zones };
	int nid, i, kind = random_below(3);

	for (nid = 0; nid < NODES; nid++) {
		if (!memmap_plans[nid])
			continue;
		memmap_plans[nid]->max_threads = 1 + random_below(4);
		if (kind)
			start(fill_node, nid, kind == 2);
	}
	for (i = 1 + random_below(4); i; i--)
		start(urgent[random_below(ARRAY_SIZE(urgent))], random_plan(), false);
}

static void one_round(void)
{
	random_memory();
	memmap_plan_all();
	memset(progress, UNTOUCHED, sizeof(progress));
	memset(written, 0, sizeof(written));
	blocks_filled = nr_workers = dawdling = 0;
	system_state = random_below(2) ? SYSTEM_RUNNING : SYSTEM_BOOTING;
	others_done = false;

	CHECK(nr_deferred_pages() == expect_deferred());
	CHECK(global_zone_page_state(NR_FREE_PAGES) == expect_deferred());
	fill_shared();
	check_deferred_zones();
	if (memmap_plans[0] || memmap_plans[1] || memmap_plans[2]) {
		start_all();
		join(false);
		WRITE_ONCE(others_done, true);
		join(true);
		total_dawdled += dawdling;
	}
	/* Where nobody filled all of it. */
	ensure_all(0);
	check_all();
	forget_plans();
}

int main(void)
{
	thread_rng = 1;
	for (test_round = 0; test_round < 150; test_round++)
		one_round();
	/* Threads met, and some stood still. */
	CHECK(total_dawdled > 0);
	/* Lists got blocks, if the series has any. */
	CHECK(!lists_asked == !blocks_listed);
	printf("fill_test: %ld checks passed, %ld threads stood still, %ld turns of waiting\n",
	       checks, total_dawdled, total_slow);
	return 0;
}
