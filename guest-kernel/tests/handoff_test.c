// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own mm/memmap_handoff.c, compiled for user space and given good,
 * damaged and random tables. Sanitizers watch over it; this file checks what it
 * logs, and that it leaves nothing reserved or allocated behind.
 */
#include "kernel_stubs.h"
#include <stdarg.h>
#include "memmap_handoff.c"

#define GIB (1ULL << 30)
#define MIB (1ULL << 20)
#define TABLE_AT (512 * MIB)

struct test_memblock memblock;
/* Two nodes: 3 GiB below 4 GiB and 4 GiB above, and 4 GiB from 16 GiB. */
struct test_range test_ram[] = {
	{ 0, 640 << 10, 0 },
	{ MIB, 3 * GIB, 0 },
	{ 4 * GIB, 8 * GIB, 0 },
	{ 16 * GIB, 20 * GIB, 1 },
};
int test_nr_ram = 4;

static u8 blob[MAX_TABLE_SIZE + 64];	/* what lies in memory at TABLE_AT */
static char logged[256];
static int log_lines, checks, reservations, copies;

#define CHECK(cond) do {						\
	checks++;							\
	if (!(cond)) {							\
		fprintf(stderr, "%s:%d: failed: %s (logged: %s)\n",	\
			__FILE__, __LINE__, #cond, logged);		\
		exit(1);						\
	}								\
} while (0)

void test_log(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(logged, sizeof(logged), fmt, args);
	va_end(args);
	log_lines++;
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

int memblock_reserve(phys_addr_t base, phys_addr_t size)
{
	reservations++;
	return 0;
}

int memblock_phys_free(phys_addr_t base, phys_addr_t size)
{
	reservations--;
	return 0;
}

bool memblock_is_region_reserved(phys_addr_t base, phys_addr_t size)
{
	return false;
}

bool memblock_overlaps_region(struct memblock_type *type, phys_addr_t base,
			      phys_addr_t size)
{
	return base < 17 * MIB && base + size > 16 * MIB;	/* the kernel */
}

bool node_online(int nid)
{
	return nid < 2;
}

static bool is_ram(u64 start, u64 end)
{
	for (int i = 0; i < test_nr_ram; i++)
		if (start >= test_ram[i].start && end <= test_ram[i].end)
			return start < end;
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
		.magic = MEMMAP_HANDOFF_MAGIC, .version = 1, .region_count = 4,
		.arena_count = 2, .header_length = sizeof(*header),
	};
	*region(0) = (struct memmap_handoff_region) { MIB, 3 * GIB - MIB, 0, 8 };
	*region(1) = (struct memmap_handoff_region) { 4 * GIB, 2 * GIB, 0, 1 };
	*region(2) = (struct memmap_handoff_region) { 6 * GIB, 2 * GIB - 4096, 0, 8 };
	*region(3) = (struct memmap_handoff_region) { 16 * GIB, 4 * GIB, 1, 6 };
	*arena(0) = (struct memmap_handoff_arena) { 4 * GIB, 64 * MIB, 0, 0, 0 };
	*arena(1) = (struct memmap_handoff_arena) { 16 * GIB, 64 * MIB, 1, 1, 7 };
	seal();
}

static void boot(u64 addr, u64 size)
{
	free(handoff);
	handoff = NULL;
	table_size = 0;
	table_reserved = false;
	log_lines = reservations = copies = 0;
	logged[0] = 0;

	memmap_handoff_found(addr, size);
	memmap_handoff_reserve(is_ram);
	memmap_handoff_init(is_ram);

	/* A table of no size is no table. Else there is one line, either way. */
	CHECK(log_lines == (size ? 1 : 0));
	CHECK(reservations == 0);
	CHECK(copies == (handoff ? 1 : 0));
	CHECK(handoff || !size || strstr(logged, "memmap_handoff: ignored: "));
	CHECK((memmap_handoff_nr_regions() > 0) == !!handoff);
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
	CHECK(r.base == 16 * GIB && r.length == 4 * GIB && r.nid == 1 && r.flags == 6);

	boot(TABLE_AT, header->length);		/* a setup_data node is as long */
	CHECK(handoff);
}

static void test_header(void)
{
	EXPECT_IGNORED(header->magic++, "bad magic");
	EXPECT_IGNORED(header->version = 2, "version 2");
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
	EXPECT_IGNORED(region(1)->flags = 16, "region 1: unknown flags");
	EXPECT_IGNORED(region(1)->length = 0, "region 1: empty");
	EXPECT_IGNORED(region(1)->length = -4096ULL, "region 1: ");
	EXPECT_IGNORED(region(3)->base = 1ULL << 52, "region 3: ");
	EXPECT_IGNORED(region(2)->base = 2 * GIB, "region 2: not in order");
	EXPECT_IGNORED(region(1)->length = 3 * GIB, "region 2: overlaps");
	EXPECT_IGNORED(region(1)->base += MIB, "region 1: not aligned to sections");
	EXPECT_IGNORED(region(1)->flags = 8, "region 1: ragged, but aligned");
	EXPECT_IGNORED((region(1)->flags = 8, region(1)->length -= MIB),
		       "region 1: ragged, but neither");
	EXPECT_IGNORED(region(2)->length -= 1, "region 2: not aligned to pages");
	EXPECT_IGNORED(region(1)->node = 1, "region 1: has memory of node 0");
	EXPECT_IGNORED(region(1)->node = 2, "region 1: there is no node 2");
	EXPECT_IGNORED(region(1)->node = -1, "region 1: there is no node");
	EXPECT_IGNORED(region(3)->length += 128 * MIB, "region 3: [");
	EXPECT_IGNORED(region(0)->length += GIB, "region 0: [");
	EXPECT_IGNORED((region(0)->length = GIB - MIB + 4096,
			region(1)->base = GIB + 8192,
			region(1)->length = 4096, region(1)->flags = 8,
			region(2)->node = 1), "region 1: shares a section");
}

static void test_arenas(void)
{
	EXPECT_IGNORED(arena(0)->flags = 2, "arena 0: unknown flags");
	EXPECT_IGNORED(arena(0)->layout_id = 1, "arena 0: has a layout");
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
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		boot(places[i], MAX_TABLE_SIZE);
		CHECK(!handoff);
	}
	for (u64 size = 0; size < header->length; size++) {
		boot(TABLE_AT, size);
		CHECK(!handoff);
	}
	/* Not a number, too long a number, nothing at all. */
	free(handoff);
	handoff = NULL;
	table_size = 0;
	test_early_param("0xzz");
	CHECK(strstr(logged, "'0xzz' is not") && !table_size);
	test_early_param("11112222333344445");
	CHECK(strstr(logged, "is not") && !table_size);
	test_early_param(NULL);
	CHECK(strstr(logged, "'' is not") && !table_size);
	test_early_param("0x20000000");
	CHECK(table_addr == TABLE_AT && table_size == MAX_TABLE_SIZE);
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
		good_table();
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

int main(void)
{
	test_good();
	test_header();
	test_regions();
	test_arenas();
	test_places();
	test_random(20000);
	free(handoff);
	printf("handoff_test: %d checks passed\n", checks);
	return 0;
}
