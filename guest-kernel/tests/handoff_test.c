// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own mm/memmap_handoff.c, compiled for user space and given good,
 * damaged and random tables. Sanitizers watch over it; this file checks what it
 * logs, that it leaves nothing reserved or allocated behind but what was asked
 * for, and that no memory is said to be zero that may not be.
 */
#include "kernel_stubs.h"
#include <stdarg.h>
#include "memmap_handoff.c"

#define GIB (1ULL << 30)
#define MIB (1ULL << 20)
#define TABLE_AT (512 * MIB)

/* What a table may have reserved: itself and each arena. */
static struct memblock_region reserved[1 + MEMMAP_HANDOFF_MAX_ARENAS];
struct test_range { u64 start, end; int nid; };
struct test_memblock memblock = { .reserved.regions = reserved };
/* Two nodes: 3 GiB below 4 GiB and 4 GiB above, and 4 GiB from 16 GiB. */
static struct test_range test_ram[] = {
	{ 0, 640 << 10, 0 },
	{ MIB, 3 * GIB, 0 },
	{ 4 * GIB, 8 * GIB, 0 },
	{ 16 * GIB, 20 * GIB, 1 },
};
static int test_nr_ram = ARRAY_SIZE(test_ram);

static u8 blob[MAX_TABLE_SIZE + 64];	/* what lies in memory at TABLE_AT */
static char logged[256], logged_arena[256];
static int log_lines, arena_lines, checks, copies;
static bool slab_is_up;
/* Memory in use beside the kernel, which the tables of a test know nothing of. */
static struct test_range in_use;
/* Memory that the firmware keeps. */
static struct test_range kept;
/* What is in the first page of region 1. */
static u64 first_word;

#define CHECK(cond) do {						\
	checks++;							\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: failed: %s (logged: %s)\n",	\
			__FILE__, __LINE__, #cond, logged);		\
		exit(1);						\
	}								\
} while (0)

/* Arenas that cannot be had are lines of their own, of which there may be many. */
void test_log(const char *fmt, ...)
{
	bool arena = strstr(fmt, "the memmap goes no further") ||
		     strstr(fmt, "more than they may have");
	va_list args;

	va_start(args, fmt);
	vsnprintf(arena ? logged_arena : logged, sizeof(logged), fmt, args);
	va_end(args);
	log_lines += !arena;
	arena_lines += arena;
}

u32 __crc32c_le(u32 crc, const u8 *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return crc;
}

void copy_from_early_mem(void *dest, phys_addr_t src, unsigned long size)
{
	u64 offset = src - TABLE_AT;

	/* Whatever is read has been found to be memory before. */
	CHECK(src + size > src);
	memset(dest, 0x5a, size);
	if (src >= TABLE_AT && offset < sizeof(blob))
		memcpy(dest, blob + offset, size < sizeof(blob) - offset ?
		       size : sizeof(blob) - offset);
}

/* A block of its own, so that the sanitizer sees each byte too far. */
void *memblock_alloc(phys_addr_t size, phys_addr_t align)
{
	copies++;
	return calloc(1, size);
}

void memblock_free(void *p, size_t size)
{
	copies--;
	free(p);
}

/* What the kernel does with the copy's original, which a later kernel must not find. */
void *early_memremap(phys_addr_t addr, unsigned long size)
{
	if (addr == 4 * GIB)
		return &first_word;
	CHECK(addr == TABLE_AT && size <= sizeof(blob));
	return blob;
}

void early_memunmap(void *p, unsigned long size)
{
	CHECK(p == blob || p == &first_word);
}

bool slab_is_available(void)
{
	return slab_is_up;
}

int memblock_reserve(phys_addr_t base, phys_addr_t size)
{
	CHECK(memblock.reserved.cnt < ARRAY_SIZE(reserved));
	reserved[memblock.reserved.cnt++] = (struct memblock_region) { base, size };
	return 0;
}

/* Only ever just what was reserved. Memblock tells that memory is no longer new. */
int memblock_phys_free(phys_addr_t base, phys_addr_t size)
{
	unsigned long i = 0;

	while (i < memblock.reserved.cnt && (reserved[i].base != base || reserved[i].size != size))
		i++;
	CHECK(i < memblock.reserved.cnt);
	reserved[i] = reserved[--memblock.reserved.cnt];
	memmap_handoff_used(base, size);
	return 0;
}

static bool overlap(u64 a, u64 a_end, u64 b, u64 b_end)
{
	return a < b_end && b < a_end;
}

bool memblock_overlaps_region(struct memblock_type *type, phys_addr_t base,
			      phys_addr_t size)
{
	CHECK(type == &memblock.reserved);
	for (unsigned long i = 0; i < type->cnt; i++)
		if (overlap(base, base + size, reserved[i].base, reserved[i].base + reserved[i].size))
			return true;
	return overlap(base, base + size, 16 * MIB, 17 * MIB) ||	/* the kernel */
	       overlap(base, base + size, in_use.start, in_use.end);
}

/* Of which the kernel has two names. */
bool memblock_is_region_reserved(phys_addr_t base, phys_addr_t size)
{
	return memblock_overlaps_region(&memblock.reserved, base, size);
}

bool node_online(int nid)
{
	return nid < 2;
}

static bool is_memory(u64 start, u64 end)
{
	for (int i = 0; i < test_nr_ram; i++)
		if (start >= test_ram[i].start && end <= test_ram[i].end)
			return start < end;
	return false;
}

static bool is_ram(u64 start, u64 end)
{
	return is_memory(start, end) && !overlap(start, end, kept.start, kept.end);
}

#ifdef MEMMAP_HANDOFF_REGION_HELD
/* Addresses of 40 bits; whatever the firmware says of a range, it is not free to use. */
static bool is_vacant(u64 start, u64 end)
{
	CHECK(start < end);
	for (int i = 0; i < test_nr_ram; i++)
		if (overlap(start, end, test_ram[i].start, test_ram[i].end))
			return false;
	return end <= 1ULL << 40 && !overlap(start, end, kept.start, kept.end);
}
#endif

/* Memory that the command line keeps from the kernel. */
static struct test_range withheld;

bool memblock_is_region_memory(phys_addr_t base, phys_addr_t size)
{
	return is_memory(base, base + size) &&
	       !overlap(base, base + size, withheld.start, withheld.end);
}

static u64 kept_for_good;

/* Only ever the page that has the mark. */
static void keep_for_good(u64 start, u64 size)
{
	CHECK(start == 4 * GIB && size == PAGE_SIZE);
	kept_for_good++;
}

static struct memmap_firmware firmware = {
	.is_ram = is_ram, .is_memory = is_memory, .keep = keep_for_good,
#ifdef MEMMAP_HANDOFF_REGION_HELD
	.is_vacant = is_vacant,
#endif
};
/* The table's way in, and whether nobody can read the guest's memory. */
static enum memmap_handoff_way way = MEMMAP_HANDOFF_SETUP_DATA;
static bool encrypted;
/* What fw_cfg has. */
static u32 file_size;

bool cc_platform_has(enum cc_attr attr)
{
	CHECK(attr == CC_ATTR_GUEST_MEM_ENCRYPT);
	return encrypted;
}

u32 memmap_fw_cfg_find(void)
{
	return file_size;
}

void memmap_fw_cfg_read(void *to, u32 size)
{
	CHECK(size == file_size && size <= sizeof(blob));
	memcpy(to, blob, size);
}

/* Where the memory ends that is in use at @at; @at itself if it is not. */
static u64 used_until(u64 at)
{
	if (at >= 16 * MIB && at < 17 * MIB)	/* the kernel */
		return 17 * MIB;
	if (at >= in_use.start && at < in_use.end)
		return in_use.end;
	for (unsigned long i = 0; i < memblock.reserved.cnt; i++)
		if (at >= reserved[i].base && at < reserved[i].base + reserved[i].size)
			return reserved[i].base + reserved[i].size;
	return at;
}

/* Page by page would be slow: the next address at or after which something is in use. */
static u64 free_until(u64 at, u64 end)
{
	if (at < 16 * MIB)
		end = min(end, 16 * MIB);
	if (at < in_use.start)
		end = min(end, in_use.start);
	for (unsigned long i = 0; i < memblock.reserved.cnt; i++)
		if (at < reserved[i].base)
			end = min(end, (u64)reserved[i].base);
	return end;
}

/* *i is the address to look from. */
bool test_next_free(u64 *i, int node, phys_addr_t *start, phys_addr_t *end)
{
	CHECK(node == NUMA_NO_NODE);
	for (int n = 0; n < test_nr_ram; n++) {
		u64 at = max(*i, test_ram[n].start), next;

		while (at < test_ram[n].end && (next = used_until(at)) != at)
			at = next;
		if (at >= test_ram[n].end)
			continue;
		*start = at;
		*end = *i = free_until(at, test_ram[n].end);
		return true;
	}
	return false;
}

bool test_next_ram(u64 *i, int node, unsigned long *start_pfn,
		   unsigned long *end_pfn, int *nid)
{
	for (; *i < (u64)test_nr_ram; ++*i) {
		const struct test_range *r = &test_ram[*i];

		if (node != MAX_NUMNODES && node != r->nid)
			continue;
		*start_pfn = PHYS_PFN(r->start);
		*end_pfn = PHYS_PFN(r->end);
		if (nid)
			*nid = r->nid;
		++*i;
		return true;
	}
	return false;
}

static struct memmap_handoff_header *header = (void *)blob;

static struct memmap_handoff_region *region(int i)
{
	return (struct memmap_handoff_region *)(header + 1) + i;
}

static struct memmap_handoff_arena *arena(int i)
{
	return (struct memmap_handoff_arena *)region(header->region_count) + i;
}

static void seal(void)
{
	header->length = sizeof(*header) +
			 header->region_count * sizeof(*region(0)) +
			 header->arena_count * sizeof(*arena(0));
	header->crc32c = 0;
	if (header->length <= sizeof(blob))
		header->crc32c = ~__crc32c_le(~0U, blob, header->length);
}

/* Three regions of node 0, one of node 1, and an arena each. */
static void good_table(void)
{
	memset(blob, 0, sizeof(blob));
	*header = (struct memmap_handoff_header) {
		.magic = MEMMAP_HANDOFF_MAGIC, .version = 2, .region_count = 4,
		.arena_count = 2, .header_length = sizeof(*header),
	};
	*region(0) = (struct memmap_handoff_region) { MIB, 3 * GIB - MIB, 0, 0 };
	*region(1) = (struct memmap_handoff_region) { 4 * GIB, 2 * GIB, 0, 1 };
	*region(2) = (struct memmap_handoff_region) { 6 * GIB, 2 * GIB - 4096, 0, 0 };
	*region(3) = (struct memmap_handoff_region) { 16 * GIB, 4 * GIB, 1, 0 };
	*arena(0) = (struct memmap_handoff_arena) { 4 * GIB, 64 * MIB, 0, 0 };
	*arena(1) = (struct memmap_handoff_arena) { 16 * GIB, 64 * MIB, 1, 0 };
	seal();
}

static int arenas_left(void)
{
	int left = 0, i;

	for (i = 0; i < MEMMAP_HANDOFF_MAX_ARENAS; i++)
		left += arena_left[i] > 0;
	return left;
}

/* As after a reset, but for what is in memory. */
static void forget(void)
{
	free(handoff);
	handoff = NULL;
	table_size = 0;
	zero_is_known = false;
	memset(arena_left, 0, sizeof(arena_left));
	nr_dirty = 0;
	memblock.reserved.cnt = 0;
	log_lines = arena_lines = copies = 0;
	logged[0] = logged_arena[0] = 0;
}

/* What stays reserved for good: a table in memory, and the page that has a mark. */
static int kept_by_us(void)
{
	int nr = 0;

	for (unsigned long i = 0; i < memblock.reserved.cnt; i++)
		nr += (reserved[i].base >= TABLE_AT &&
		       reserved[i].base < TABLE_AT + MAX_TABLE_SIZE) ||
		      (reserved[i].base == 4 * GIB && reserved[i].size == PAGE_SIZE);
	return nr;
}

/* Only arenas stay reserved: all of those that nobody else uses, from their start on. */
static void boot(u64 addr, u64 size)
{
	forget();
	memmap_handoff_found(way, addr, size);
	memmap_handoff_reserve(&firmware);
	memmap_handoff_init(&firmware);

	/* A table of no size is no table. Else there is one line, either way. */
	CHECK(log_lines == (size ? 1 : 0));
	CHECK((int)memblock.reserved.cnt == arenas_left() + kept_by_us());
	CHECK(arenas_left() + arena_lines >= (handoff ? (int)handoff->arena_count : 0) ||
	      strstr(logged_arena, "more than they may have"));
	CHECK(arenas_left() <= (handoff ? (int)handoff->arena_count : 0));
	CHECK(copies == (handoff ? 1 : 0));
	CHECK(handoff || !size || strstr(logged, "memmap_handoff: ignored: "));
	CHECK((memmap_handoff_nr_regions() > 0) == !!handoff);
	/* The next kernel must not find it: only a file is still there. */
	CHECK(!handoff || (header->magic == 0) == (way != MEMMAP_HANDOFF_FW_CFG));
}

static void expect_ignored(const char *why)
{
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(!handoff);
	CHECK(strstr(logged, why));
}

/* Changes one field of a good table, with the right CRC, and looks for the line. */
#define EXPECT_IGNORED(change, why) do {	\
	good_table();				\
	change;					\
	seal();					\
	expect_ignored(why);			\
} while (0)

static void test_good(void)
{
	struct memmap_region r;

	good_table();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff && strstr(logged, "4 regions, 2 arenas"));
	memmap_handoff_get_region(3, &r);
	CHECK(r.base == 16 * GIB && r.length == 4 * GIB && r.nid == 1 && r.flags == 0);

	good_table();
	boot(TABLE_AT, header->length);		/* a setup_data node is as long */
	CHECK(handoff);
}

static void test_header(void)
{
	EXPECT_IGNORED(header->magic++, "bad magic");
	EXPECT_IGNORED(header->version = 1, "version 1");
	EXPECT_IGNORED(header->version = 3, "version 3");
	EXPECT_IGNORED(header->header_length = 48, "header of 48 bytes");
	EXPECT_IGNORED(header->reserved = 1, "reserved field");
	EXPECT_IGNORED(header->region_count = 0, "0 regions");
	EXPECT_IGNORED(header->region_count = 4097, "4097 regions");
	EXPECT_IGNORED(header->arena_count = 4097, "4097 arenas");
	good_table();
	header->length++;
	expect_ignored("length");
	good_table();
	header->crc32c ^= 1;
	expect_ignored("CRC-32C");
}

static void test_regions(void)
{
	EXPECT_IGNORED(region(1)->flags = MEMMAP_HANDOFF_REGION_FLAGS + 1, "region 1: unknown flags");
	EXPECT_IGNORED(region(1)->flags = 9, "region 1: unknown flags");
	EXPECT_IGNORED(region(1)->flags |= 1U << 31, "region 1: unknown flags");
	EXPECT_IGNORED(region(1)->length = 0, "region 1: empty");
	EXPECT_IGNORED(region(1)->length = -4096ULL, "region 1: ");
	EXPECT_IGNORED(region(3)->base = 1ULL << 52, "region 3: ");
	EXPECT_IGNORED(region(2)->base = 2 * GIB, "region 2: not in order");
	EXPECT_IGNORED(region(1)->length = 3 * GIB, "region 2: overlaps");
	EXPECT_IGNORED(region(1)->base += MIB, "region 1: not aligned to sections");
	EXPECT_IGNORED(region(1)->length -= MIB,
		       "region 1: not aligned to sections, nor first or last");
	EXPECT_IGNORED(region(2)->length -= 1, "region 2: not aligned to pages");
	EXPECT_IGNORED(region(1)->node = 1, "region 1: has memory of node 0");
	EXPECT_IGNORED(region(1)->node = 2, "region 1: there is no node 2");
	EXPECT_IGNORED(region(1)->node = -1, "region 1: there is no node");
	EXPECT_IGNORED(region(3)->length += 128 * MIB, "region 3: [");
	EXPECT_IGNORED(region(0)->length += GIB, "region 0: [");
	EXPECT_IGNORED((region(0)->length = GIB - MIB + 4096,
			region(1)->base = GIB + 8192,
			region(1)->length = 4096,
			region(2)->node = 1), "region 1: shares a section");
}

/* Pages of two nodes in one section: of each node, one region reaches into it, whatever is in between. */
static void test_shared_section(void)
{
	struct test_range ram[ARRAY_SIZE(test_ram)];

	memcpy(ram, test_ram, sizeof(ram));
	test_ram[1] = (struct test_range) { 4 * GIB, 4 * GIB + 4096, 0 };
	test_ram[2] = (struct test_range) { 4 * GIB + 4096, 4 * GIB + 8192, 1 };
	test_ram[3] = (struct test_range) { 4 * GIB + 8192, 8 * GIB, 0 };
	good_table();
	header->region_count = 3;
	header->arena_count = 0;
	for (int i = 0; i < 3; i++)
		*region(i) = (struct memmap_handoff_region) {
			test_ram[i + 1].start, test_ram[i + 1].end - test_ram[i + 1].start, test_ram[i + 1].nid, 0,
		};
	seal();
	/* A file: there is no other memory for a table. */
	way = MEMMAP_HANDOFF_FW_CFG;
	file_size = header->length;
	expect_ignored("region 2: shares a section");

	/* Two nodes may. */
	header->region_count = 2;
	seal();
	file_size = header->length;
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff);

	/* So may three regions, the last of which begins with the next section. */
	header->region_count = 3;
	region(2)->base = 4 * GIB + 128 * MIB;
	region(2)->length = 8 * GIB - region(2)->base;
	seal();
	file_size = header->length;
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff);
	way = MEMMAP_HANDOFF_SETUP_DATA;
	memcpy(test_ram, ram, sizeof(ram));
}

#ifdef MEMMAP_HANDOFF_REGION_HELD
/* The same as a good table, and two regions behind all memory that are held, one of each node. */
static void held_table(void)
{
	struct memmap_handoff_arena arenas[2];

	good_table();
	memcpy(arenas, arena(0), sizeof(arenas));
	header->region_count = 6;
	*region(4) = (struct memmap_handoff_region) { 24 * GIB, 4 * GIB, 0, MEMMAP_HANDOFF_REGION_HELD };
	*region(5) = (struct memmap_handoff_region) { 32 * GIB, 8 * GIB, 1, MEMMAP_HANDOFF_REGION_HELD };
	memcpy(arena(0), arenas, sizeof(arenas));
	seal();
}

#define EXPECT_HELD_IGNORED(change, why) do {	\
	held_table();				\
	change;					\
	seal();					\
	expect_ignored(why);			\
} while (0)

#define EXPECT_HELD_TAKEN(change) do {		\
	held_table();				\
	change;					\
	seal();					\
	boot(TABLE_AT, MAX_TABLE_SIZE);		\
	CHECK(handoff);				\
} while (0)

/* A table whose second and last region is held, with nothing but low memory in the first. */
static void low_table(u64 base, u64 length)
{
	good_table();
	header->region_count = 2;
	header->arena_count = 0;
	*region(1) = (struct memmap_handoff_region) { base, length, 0, MEMMAP_HANDOFF_REGION_HELD };
	seal();
}

static void test_held_taken(void)
{
	struct memmap_region r;

	EXPECT_HELD_TAKEN();
	CHECK(strstr(logged, "6 regions, 2 arenas"));
	memmap_handoff_get_region(4, &r);
	CHECK(r.base == 24 * GIB && r.length == 4 * GIB && r.nid == 0);
	CHECK(r.flags == MEMMAP_HANDOFF_REGION_HELD);
	CHECK(!memmap_handoff_zeroed(24 * GIB, 4096));
	/* Next to each other and to memory, of any node, up to the last address. */
	EXPECT_HELD_TAKEN(region(5)->base = 28 * GIB);
	EXPECT_HELD_TAKEN((region(4)->base = 20 * GIB, region(4)->node = 1));
	EXPECT_HELD_TAKEN((region(5)->base = (1ULL << 40) - 128 * MIB, region(5)->length = 128 * MIB));
}

/* Whole sections with that flag alone, behind all that is not held. */
static void test_held_rules(void)
{
	EXPECT_HELD_IGNORED(region(4)->flags |= MEMMAP_HANDOFF_REGION_ZEROED, "region 4: held, with flags 0x3");
	EXPECT_HELD_IGNORED(region(4)->flags |= MEMMAP_HANDOFF_REGION_FLAGS + 1, "region 4: unknown flags 0x6");
	EXPECT_HELD_IGNORED(region(4)->flags |= 1U << 31, "region 4: unknown flags 0x80000002");
	EXPECT_HELD_IGNORED(region(4)->length = 0, "region 4: empty");
	EXPECT_HELD_IGNORED(region(5)->length = -128 * MIB, "region 5: ");
	EXPECT_HELD_IGNORED((region(4)->base += 4096, region(4)->length -= 4096),
			    "region 4: held, and not aligned to sections");
	EXPECT_HELD_IGNORED(region(4)->length -= 4096, "region 4: held, and not aligned to sections");
	EXPECT_HELD_IGNORED(region(5)->length -= 64 * MIB, "region 5: held, and not aligned to sections");
	EXPECT_HELD_IGNORED(region(5)->length += 1, "region 5: held, and not aligned to sections");
	EXPECT_HELD_IGNORED(region(5)->flags = 0, "region 5: follows a held one, and is not held");
	EXPECT_HELD_IGNORED((region(3)->base = 12 * GIB, region(3)->flags = MEMMAP_HANDOFF_REGION_HELD,
			     region(4)->base = 16 * GIB, region(4)->node = 1, region(4)->flags = 0),
			    "region 4: follows a held one, and is not held");
	EXPECT_HELD_IGNORED(region(5)->base = 22 * GIB, "region 5: not in order");
	EXPECT_HELD_IGNORED(region(5)->base = 28 * GIB - 128 * MIB, "region 5: overlaps the one before");
	EXPECT_HELD_IGNORED(region(4)->base = 20 * GIB - 128 * MIB, "region 4: overlaps the one before");
	EXPECT_HELD_IGNORED(region(4)->node = 2, "region 4: there is no node 2");
	EXPECT_HELD_IGNORED(region(5)->node = -1, "region 5: there is no node");
	/* What is to come has no struct pages yet. */
	EXPECT_HELD_IGNORED(*arena(1) = ((struct memmap_handoff_arena) { 24 * GIB, 64 * MIB, 0, 0 }),
			    "arena 1: [0x600000000-0x603ffffff] is not all memory");
}

/* Where nothing else is, and where the processor has addresses; not below 4 GiB. */
static void test_held_place(void)
{
	const char *why = "is held, and not free to use";

	EXPECT_HELD_IGNORED(region(3)->flags = MEMMAP_HANDOFF_REGION_HELD, why);
	EXPECT_HELD_IGNORED(region(5)->base = (1ULL << 40) - 4 * GIB, why);
	/* Memory that no region tells of, in the last section. */
	EXPECT_HELD_IGNORED((region(3)->base = 12 * GIB, region(3)->length = 4 * GIB + 128 * MIB,
			     region(3)->flags = MEMMAP_HANDOFF_REGION_HELD), why);
	CHECK(strstr(logged, "region 3: [0x300000000-0x407ffffff] is held"));
	kept = (struct test_range) { 28 * GIB - 4096, 28 * GIB, 0 };
	EXPECT_HELD_IGNORED(, why);
	kept = (struct test_range) { 0, 0, 0 };

	low_table(3 * GIB, 128 * MIB);
	expect_ignored("region 1: [0xc0000000-0xc7ffffff] is held, and not free to use");
	test_nr_ram = 2;
	low_table(4 * GIB - 128 * MIB, 256 * MIB);
	expect_ignored(why);
	low_table(4 * GIB, 128 * MIB);
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff);
	test_nr_ram = ARRAY_SIZE(test_ram);
}

static void test_held(void)
{
	test_held_taken();
	test_held_rules();
	test_held_place();
}

static void table_to_damage(int i)
{
	i % 3 ? good_table() : held_table();
}
#else
static void test_held(void)
{
}

static void table_to_damage(int i)
{
	good_table();
}
#endif

static void test_arenas(void)
{
	EXPECT_IGNORED(arena(1)->reserved = 1, "arena 1: reserved field is 0x1");
	EXPECT_IGNORED(arena(0)->length = 0, "arena 0: empty");
	EXPECT_IGNORED(arena(0)->length = -2 * MIB, "arena 0: empty");
	EXPECT_IGNORED(arena(0)->base += MIB, "arena 0: not aligned");
	EXPECT_IGNORED(arena(1)->base = 4 * GIB, "arena 1: not in order");
	EXPECT_IGNORED(arena(1)->base = 12 * GIB, "arena 1: not inside");
	EXPECT_IGNORED(arena(1)->base = 20 * GIB, "arena 1: not inside");
	EXPECT_IGNORED(arena(0)->length = 3 * GIB, "arena 0: not inside");
	EXPECT_IGNORED(arena(0)->node = 1, "arena 0: of node 1");
}

static void test_places(void)
{
	static const u64 places[] = {
		0, 640 << 10, 3 * GIB - 8, 3 * GIB, 12 * GIB, 1ULL << 52,
		-1ULL, -8ULL, -4096ULL, 16 * MIB, 17 * MIB - 8,
	};

	good_table();
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		boot(places[i], MAX_TABLE_SIZE);
		CHECK(!handoff);
	}
	for (u64 size = 0; size < header->length; size++) {
		boot(TABLE_AT, size);
		CHECK(!handoff);
	}
	/* Not a number, too long a number, nothing at all. */
	forget();
	test_early_param("0xzz");
	CHECK(strstr(logged, "'0xzz' is neither fw_cfg nor") && !table_size);
	test_early_param("11112222333344445");
	CHECK(strstr(logged, "is neither") && !table_size);
	test_early_param(NULL);
	CHECK(strstr(logged, "'' is neither") && !table_size);
	test_early_param("0x20000000");
	CHECK(table_addr == TABLE_AT && table_size == MAX_TABLE_SIZE);
}

/* Three arenas of node 0 in two regions, and one of node 1 between no others. */
static void arena_table(void)
{
	good_table();
	header->arena_count = 4;
	*arena(0) = (struct memmap_handoff_arena) { 4 * GIB, 64 * MIB, 0, 0 };
	*arena(1) = (struct memmap_handoff_arena) { 5 * GIB, 2 * MIB, 0, 0 };
	*arena(2) = (struct memmap_handoff_arena) { 7 * GIB, 32 * MIB, 0, 0 };
	*arena(3) = (struct memmap_handoff_arena) { 16 * GIB, 64 * MIB, 1, 0 };
	seal();
}

static void expect_arena(int nid, u64 base, u64 length)
{
	unsigned long size = 0;
	void *p = memmap_handoff_take_arena(nid, &size);

	CHECK((u64)(uintptr_t)p == base);
	CHECK(size == length);
}

/* Taken in order, each once, by its own node; the rest is free memory again. */
static void test_take_arenas(void)
{
	arena_table();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(arenas_left() == 4);
	expect_arena(0, 4 * GIB, 64 * MIB);
	expect_arena(1, 16 * GIB, 64 * MIB);
	expect_arena(1, 0, 0);
	expect_arena(2, 0, 0);
	expect_arena(0, 5 * GIB, 2 * MIB);
	CHECK(arenas_left() == 1);

	memmap_handoff_free_arenas();
	CHECK(memblock.reserved.cnt == 3);
	CHECK(memblock_overlaps_region(&memblock.reserved, 4 * GIB, 64 * MIB));
	CHECK(memblock_overlaps_region(&memblock.reserved, 16 * GIB, 64 * MIB));
	CHECK(memblock_overlaps_region(&memblock.reserved, 5 * GIB, 2 * MIB));
	CHECK(!memblock_overlaps_region(&memblock.reserved, 7 * GIB, 32 * MIB));
	expect_arena(0, 0, 0);
	memmap_handoff_free_arenas();
	CHECK(memblock.reserved.cnt == 3);
}

/* Without a table there is nothing to take, nor to free. */
static void test_no_arenas(void)
{
	boot(TABLE_AT, 0);
	expect_arena(0, 0, 0);
	memmap_handoff_free_arenas();
	CHECK(memblock.reserved.cnt == 0);
}

/* An arena ends where memory is in use, if only a page of it; that stays in use. */
static void test_arenas_in_use(void)
{
	const struct { u64 place, left; } cases[] = {
		{ 7 * GIB - 4096, 32 * MIB }, { 7 * GIB, 0 }, { 7 * GIB + 2 * MIB - 4096, 0 },
		{ 7 * GIB + 2 * MIB, 2 * MIB }, { 7 * GIB + 31 * MIB, 30 * MIB },
		{ 7 * GIB + 32 * MIB - 4096, 30 * MIB }, { 7 * GIB + 32 * MIB, 32 * MIB },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		u64 left = cases[i].left;
		char line[64];

		in_use = (struct test_range) { cases[i].place, cases[i].place + 4096 };
		arena_table();
		boot(TABLE_AT, MAX_TABLE_SIZE);
		CHECK(arena_lines == (left < 32 * MIB) && arenas_left() == 3 + (left > 0));
		snprintf(line, sizeof(line), "arena 2 is in use from %#llx on", 7 * GIB + left);
		CHECK(!arena_lines || strstr(logged_arena, line));
		expect_arena(0, 4 * GIB, 64 * MIB);
		expect_arena(0, 5 * GIB, 2 * MIB);
		if (left)
			expect_arena(0, 7 * GIB, left);
		expect_arena(0, 0, 0);
		memmap_handoff_free_arenas();
		CHECK((int)memblock.reserved.cnt == 2 + (left > 0));
	}
	in_use = (struct test_range) { 0 };

	/* The table itself may be where an arena is. */
	arena_table();
	*arena(0) = (struct memmap_handoff_arena) { TABLE_AT, 2 * MIB, 0, 0 };
	seal();
	way = MEMMAP_HANDOFF_ADDRESS;
	boot(TABLE_AT, MAX_TABLE_SIZE);
	way = MEMMAP_HANDOFF_SETUP_DATA;
	CHECK(handoff && arena_lines == 1 && strstr(logged_arena, "arena 0 is in use"));
	expect_arena(0, 5 * GIB, 2 * MIB);

	/* What is left of an arena, and was not taken, is free memory again: just that, as memblock_phys_free() sees to. */
	in_use = (struct test_range) { 7 * GIB + 3 * MIB, 7 * GIB + 4 * MIB };
	arena_table();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	memmap_handoff_free_arenas();
	CHECK(memblock.reserved.cnt == 0);
	in_use = (struct test_range) { 0 };
}

/* Region 1, [4 GiB, 6 GiB), is the one that is zero; region 3 is made so, too. */
static void boot_zeroed(void)
{
	good_table();
	header->arena_count = 0;
	region(3)->flags |= MEMMAP_HANDOFF_REGION_ZEROED;
	seal();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff);
}

static void test_zeroed(void)
{
	forget();
	CHECK(!memmap_handoff_zeroed(4 * GIB, 4096));

	boot_zeroed();
	CHECK(memmap_handoff_zeroed(4 * GIB, 2 * GIB));
	CHECK(memmap_handoff_zeroed(6 * GIB - 1, 1));
	CHECK(memmap_handoff_zeroed(16 * GIB, 4 * GIB));
	/* Another region, the end of one and the begin of the next, no region. */
	CHECK(!memmap_handoff_zeroed(2 * GIB, 4096));
	CHECK(!memmap_handoff_zeroed(6 * GIB, 4096));
	CHECK(!memmap_handoff_zeroed(6 * GIB - 4096, 8192));
	CHECK(!memmap_handoff_zeroed(4 * GIB - 1, 2));
	CHECK(!memmap_handoff_zeroed(12 * GIB, 4096));
	CHECK(!memmap_handoff_zeroed(20 * GIB - 1, 2));
}

/* What has been used is not zero any more, to the byte. */
static void test_used(void)
{
	const u64 base = 5 * GIB, size = 12345;

	boot_zeroed();
	memmap_handoff_used(base, size);
	CHECK(!memmap_handoff_zeroed(base, size));
	CHECK(!memmap_handoff_zeroed(base, 1));
	CHECK(!memmap_handoff_zeroed(base + size - 1, 1));
	CHECK(!memmap_handoff_zeroed(base - 1, 2));
	CHECK(!memmap_handoff_zeroed(4 * GIB, 2 * GIB));
	CHECK(memmap_handoff_zeroed(base - 4096, 4096));
	CHECK(memmap_handoff_zeroed(base + size, 4096));

	/* Used before there was a table counts, too. */
	forget();
	memmap_handoff_used(4 * GIB, 4096);
	good_table();
	memmap_handoff_found(way, TABLE_AT, MAX_TABLE_SIZE);
	memmap_handoff_reserve(&firmware);
	memmap_handoff_init(&firmware);
	CHECK(handoff && !memmap_handoff_zeroed(4 * GIB, 4096));
	CHECK(memmap_handoff_zeroed(4 * GIB + 4096, 4096));

	/* An arena that is given back had been used. */
	good_table();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	memmap_handoff_free_arenas();
	CHECK(!memmap_handoff_zeroed(4 * GIB, 4096));
	CHECK(memmap_handoff_zeroed(4 * GIB + 64 * MIB, 4096));

	/* Memory of the page allocator is none of its business. */
	boot_zeroed();
	slab_is_up = true;
	memmap_handoff_used(4 * GIB, 4096);
	slab_is_up = false;
	CHECK(memmap_handoff_zeroed(4 * GIB, 4096));
}

/* Pieces that touch take one entry, however many they are, from either side. */
static void test_used_merges(void)
{
	boot_zeroed();
	nr_dirty = 0;
	for (int i = 0; i < 1000; i++) {
		memmap_handoff_used(5 * GIB + i * 4096, 4096);
		memmap_handoff_used(5 * GIB - (i + 1) * 4096, 4096);
	}
	CHECK(nr_dirty == 1);
	CHECK(memmap_handoff_zeroed(5 * GIB - 1001 * 4096, 4096));
	CHECK(!memmap_handoff_zeroed(5 * GIB - 1000 * 4096, 1));
	CHECK(!memmap_handoff_zeroed(5 * GIB + 1000 * 4096 - 1, 1));
	CHECK(memmap_handoff_zeroed(5 * GIB + 1000 * 4096, 4096));
}

static u64 random64(void);

/* However much is used, in whatever order: no used byte is ever said to be zero. */
static void test_used_random(int rounds)
{
	static u8 was_used[2 * GIB / MIB];
	long zeroed = 0;

	for (int i = 0; i < rounds; i++) {
		int pieces = random64() % 200;

		boot_zeroed();
		memset(was_used, 0, sizeof(was_used));
		while (pieces--) {
			u64 page = random64() % sizeof(was_used);
			u64 size = 1 + random64() % min(sizeof(was_used) - page, 4);

			memmap_handoff_used(4 * GIB + page * MIB, size * MIB);
			memset(was_used + page, 1, size);
			CHECK(nr_dirty <= ARRAY_SIZE(dirty));
		}
		for (size_t page = 0; page < sizeof(was_used); page++) {
			bool zero = memmap_handoff_zeroed(4 * GIB + page * MIB, MIB);

			CHECK(!zero || !was_used[page]);
			zeroed += zero;
			/* While there is room, it is exact. */
			CHECK(zero || was_used[page] || nr_dirty == ARRAY_SIZE(dirty));
		}
	}
	CHECK(zeroed > 0);
}

static u64 rng = 88172645463325252ULL;

static u64 random64(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

/* Damage anywhere, some with a CRC that says otherwise. Sanitizers judge. */
static void test_random(int rounds)
{
	int taken = 0;

	for (int i = 0; i < rounds; i++) {
		table_to_damage(i);
		for (int n = 1 + random64() % 4; n; n--) {
			u8 *p = blob + random64() % header->length;

			if (p >= blob + sizeof(blob))
				break;
			*p ^= 1 << random64() % 8;
		}
		if (i % 4)
			header->region_count = header->region_count % 4200;
		if (i % 4)
			header->arena_count = header->arena_count % 4200;
		if (i % 2)
			seal();
		boot(TABLE_AT, i % 8 ? MAX_TABLE_SIZE : random64() % 300);
		taken += !!handoff;
	}
	for (int i = 0; i < rounds / 10; i++) {
		for (int j = 0; j < 512; j++)
			blob[j] = random64();
		if (i % 2)
			header->magic = MEMMAP_HANDOFF_MAGIC;
		boot(TABLE_AT, MAX_TABLE_SIZE);
		CHECK(!handoff);
	}
	fprintf(stderr, "handoff_test: %d damaged tables, %d of them still valid\n",
		rounds, taken);
	/* Damage that is all found says that the CRC is checked first: seal() must reach the rest. */
	CHECK(taken > 0);
}

/* A table on its own, by any way in; what it says to be zero may be believed or not. */
static void expect_taken(enum memmap_handoff_way by, bool zero)
{
	u64 magic = header->magic;

	way = by;
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff);
	CHECK(memmap_handoff_zeroed(5 * GIB, 4096) == zero);
	CHECK(!strstr(logged, "memory may not be zero") == zero);
	way = MEMMAP_HANDOFF_SETUP_DATA;
	header->magic = magic;
}

/* Nobody gets the memory of a table, good or bad, that a later kernel may look at. */
static void test_table_is_kept(void)
{
	good_table();
	expect_taken(MEMMAP_HANDOFF_ADDRESS, false);
	CHECK(memblock_overlaps_region(&memblock.reserved, TABLE_AT, 1));
	CHECK(memblock_overlaps_region(&memblock.reserved, TABLE_AT + header->length - 1, 1));
	CHECK(!memblock_overlaps_region(&memblock.reserved, TABLE_AT + header->length, 1));

	good_table();
	header->crc32c ^= 1;
	way = MEMMAP_HANDOFF_ADDRESS;
	expect_ignored("CRC-32C");
	CHECK(memblock_overlaps_region(&memblock.reserved, TABLE_AT + header->length - 1, 1));
	good_table();
	header->magic = 0;
	expect_ignored("bad magic");
	CHECK(memblock_overlaps_region(&memblock.reserved, TABLE_AT, 1));

	/* Someone else's memory, such as an initramfs, is given back one day. */
	good_table();
	in_use = (struct test_range) { TABLE_AT + 64, TABLE_AT + 4096 };
	expect_ignored("overlap memory in use");
	in_use = (struct test_range) { TABLE_AT - 4096, TABLE_AT + 8 };
	expect_ignored("40 bytes at 0x20000000 overlap memory in use");
	in_use = (struct test_range) { 0 };
	way = MEMMAP_HANDOFF_SETUP_DATA;
}

/* A mark tells whether the memory is the one that a machine was started with. */
static void test_still_zero(void)
{
	static const enum memmap_handoff_way ways[] = {
		MEMMAP_HANDOFF_ADDRESS, MEMMAP_HANDOFF_EFI, MEMMAP_HANDOFF_FW_CFG,
	};

	good_table();
	header->arena_count = 0;
	seal();
	file_size = header->length;
	first_word = 0;
	expect_taken(MEMMAP_HANDOFF_SETUP_DATA, true);
	CHECK(first_word == 0);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		bool asked = ways[i] != MEMMAP_HANDOFF_EFI;

		expect_taken(ways[i], !asked);
		CHECK(!first_word == asked);
		first_word = 0;
		firmware.direct = true;
		kept_for_good = 0;
		expect_taken(ways[i], true);
		CHECK(first_word != 0 && kept_for_good == 1);
		CHECK(memblock_overlaps_region(&memblock.reserved, 4 * GIB, 1));
		/* After a reset, with the same table and command line. */
		expect_taken(ways[i], false);
		CHECK(memblock_overlaps_region(&memblock.reserved, 4 * GIB, 1));
		CHECK(kept_for_good == 2);
		first_word = 0;
		/* Someone has the page already. */
		in_use = (struct test_range) { 4 * GIB, 4 * GIB + 8 };
		expect_taken(ways[i], false);
		CHECK(first_word == 0);
		in_use = (struct test_range) { 0 };
		/* As memmap=8G!4G does: it has somebody's data. */
		withheld = (struct test_range) { 4 * GIB, 12 * GIB };
		expect_taken(ways[i], false);
		CHECK(first_word == 0);
		withheld = (struct test_range) { 0 };
		firmware.direct = false;
	}
}

/* Every way in but the boot protocol's is closed to a kernel that another one started. */
static void test_refused(void)
{
	good_table();
	file_size = header->length;
	firmware.kexec = true;
	for (way = MEMMAP_HANDOFF_ADDRESS; way <= MEMMAP_HANDOFF_FW_CFG; way++) {
		expect_ignored("this kernel was started by kexec");
		CHECK(memblock.reserved.cnt == 0 && header->magic == MEMMAP_HANDOFF_MAGIC);
	}
	expect_taken(MEMMAP_HANDOFF_SETUP_DATA, true);
	firmware.kexec = false;

	encrypted = true;
	for (way = MEMMAP_HANDOFF_SETUP_DATA; way <= MEMMAP_HANDOFF_FW_CFG; way++) {
		good_table();
		expect_ignored("the memory of this guest is encrypted");
		CHECK(memblock.reserved.cnt == 0);
	}
	encrypted = false;
	way = MEMMAP_HANDOFF_SETUP_DATA;
}

/* A file: asked for by a word, of a size that a table can have. */
static void test_fw_cfg(void)
{
	static const u32 sizes[] = { 0, 1, 39, MAX_TABLE_SIZE + 1, -1U };

	forget();
	test_early_param("fw_cfg");
	CHECK(table_way == MEMMAP_HANDOFF_FW_CFG && table_size && !log_lines);
	good_table();
	file_size = header->length;
	expect_taken(MEMMAP_HANDOFF_FW_CFG, false);
	CHECK(memblock.reserved.cnt == 2);
	way = MEMMAP_HANDOFF_FW_CFG;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		file_size = sizes[i];
		expect_ignored(file_size ? "no table" : "no opt/org.flatboot/memmap-handoff in fw_cfg");
	}
	for (file_size = 40; file_size < header->length; file_size += 8)
		expect_ignored("bytes were given");
	way = MEMMAP_HANDOFF_SETUP_DATA;
}

static u64 arena_bytes(int nid, u64 end)
{
	u64 bytes = 0;

	for (u32 i = 0; i < header->arena_count; i++)
		if (arena(i)->node == (u32)nid && arena(i)->base < end)
			bytes += arena_left[i];
	return bytes;
}

/* Whatever a table asks for: a node's memmap, and half of what is below 4 GiB, is the most. */
static void test_arena_limits(void)
{
	/* Node 0 has memory in 24 sections below 4 GiB and 32 above, node 1 in 32. */
	good_table();
	*arena(0) = (struct memmap_handoff_arena) { 4 * GIB, 2 * GIB, 0, 0 };
	*arena(1) = (struct memmap_handoff_arena) { 16 * GIB, 4 * GIB, 1, 0 };
	seal();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(arena_lines == 1 && strstr(logged_arena, "more than they may have"));
	expect_arena(0, 4 * GIB, 56 * 2 * MIB);
	expect_arena(1, 16 * GIB, 32 * 2 * MIB);

	/* In pieces, however many: 2 GiB of them here, 4 GiB there. */
	good_table();
	header->arena_count = 1024 + 2048;
	for (u64 i = 0; i < 1024; i++)
		*arena(i) = (struct memmap_handoff_arena) { 4 * GIB + i * 2 * MIB, 2 * MIB, 0, 0 };
	for (u64 i = 0; i < 2048; i++)
		*arena(1024 + i) = (struct memmap_handoff_arena) { 16 * GIB + i * 2 * MIB, 2 * MIB, 1, 0 };
	seal();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff && arena_lines == 1);
	CHECK(arena_bytes(0, -1ULL) == 112 * MIB && arena_bytes(1, -1ULL) == 64 * MIB);

	/* 64 GiB above, and all that its memmap needs asked for below: 1536 MiB are there. */
	test_ram[2].end = 68 * GIB;
	test_nr_ram--;
	good_table();
	header->region_count = 3;
	region(2)->length = 62 * GIB;
	region(2)->flags = 0;
	header->arena_count = 1;
	*arena(0) = (struct memmap_handoff_arena) { 32 * MIB, 2048ULL * MIB, 0, 0 };
	seal();
	test_ram[1].end = GIB;
	region(0)->length = GIB - MIB;
	arena(0)->length = 960 * MIB;
	seal();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff && arena_lines == 1 && arena_bytes(0, 4 * GIB) == 510 * MIB);
	test_ram[1].end = 3 * GIB;
	test_ram[2].end = 8 * GIB;
	test_nr_ram++;
}

/* Under UEFI: regions may have memory in them that the kernel cannot use, arenas must not. */
static void test_kept(void)
{
	kept = (struct test_range) { TABLE_AT, TABLE_AT + MIB, 0 };
	good_table();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff && memmap_handoff_nr_regions() == 4);

	/* Nobody allocates from it, so nothing is reserved, nor given back. */
	forget();
	good_table();
	memmap_handoff_found_at(MEMMAP_HANDOFF_EFI, TABLE_AT);
	memmap_handoff_reserve(&firmware);
	CHECK(table_size == header->length && memblock.reserved.cnt == 0);
	memmap_handoff_init(&firmware);
	CHECK(handoff && log_lines == 1);

	kept = (struct test_range) { 4 * GIB + 32 * MIB, 4 * GIB + 33 * MIB, 0 };
	good_table();
	expect_ignored("arena 0: [0x100000000-0x103ffffff] is not all memory");
	kept = (struct test_range) { 4 * GIB + 64 * MIB, 4 * GIB + 65 * MIB, 0 };
	good_table();
	boot(TABLE_AT, MAX_TABLE_SIZE);
	CHECK(handoff);
	/* What is no memory at all is still not for a region. */
	EXPECT_IGNORED(region(1)->base = 3 * GIB, "region 1: ");
	kept = (struct test_range) { 0, 0, 0 };
}

int main(void)
{
	test_good();
	test_header();
	test_regions();
	test_shared_section();
	test_held();
	test_arenas();
	test_places();
	test_take_arenas();
	test_no_arenas();
	test_arenas_in_use();
	test_zeroed();
	test_kept();
	test_table_is_kept();
	test_still_zero();
	test_refused();
	test_fw_cfg();
	test_arena_limits();
	test_used();
	test_used_merges();
	test_used_random(200);
	test_random(20000);
	free(handoff);
	printf("handoff_test: %d checks passed\n", checks);
	return 0;
}
