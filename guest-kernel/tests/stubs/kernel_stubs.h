/* SPDX-License-Identifier: GPL-2.0-only */
/* The little of the kernel that the files under test need, for user space. */
#ifndef KERNEL_STUBS_H
#define U64_MAX		(~0ULL)
#define KERNEL_STUBS_H

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef uint32_t __le32;
typedef uint64_t __le64;
typedef u64 phys_addr_t;

#define le32_to_cpu(x)	(x)
#define cpu_to_le32(x)	(x)
/* The kernel's u64 is an unsigned long long, which its formats rely on. */
#define le64_to_cpu(x)	((unsigned long long)(x))

#define __init
#define __initdata
#define __init_memblock
#define __initdata_memblock
/* __always_inline is from the C library. */
#define EXPORT_SYMBOL_GPL(x)

#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define IS_ALIGNED(x, a)	(((x) & ((a) - 1)) == 0)
#define ALIGN_DOWN(x, a)	((x) & ~((u64)(a) - 1))
#define ALIGN(x, a)		(((x) + (a) - 1) & ~((u64)(a) - 1))
#define round_down(x, a)	((x) & ~((u64)(a) - 1))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define min(a, b)		((a) < (b) ? (a) : (b))
#define min_t(t, a, b)		min((t)(a), (t)(b))
#define max_t(t, a, b)		max((t)(a), (t)(b))
#define array_size(n, size)	((n) * (size))

/* 1 for a macro that is 1, 0 for one that there is not. */
#define PLACEHOLDER_1			0,
#define SECOND(ignored, val, ...)	val
#define IS_ENABLED_(one_or_junk)	SECOND(one_or_junk 1, 0)
#define IS_ENABLED__(val)		IS_ENABLED_(PLACEHOLDER_##val)
#define IS_ENABLED(option)		IS_ENABLED__(option)

/* A test may have sections and blocks of fewer pages, to have more of them. */
#ifndef PAGES_PER_SECTION
#define PAGES_PER_SECTION	32768UL
#define MAX_ORDER_NR_PAGES	1024UL
#endif
#define PAGE_SIZE		4096UL
#define SMP_CACHE_BYTES		64
#define MAX_NUMNODES		64
#define NUMA_NO_NODE		(-1)
#define PMD_SIZE		(2UL << 20)
#define SZ_4G			(1ULL << 32)
struct page { u64 words[8]; };
#define PFN_PHYS(x)		((u64)(x) << 12)
#define PHYS_PFN(x)		((unsigned long)((x) >> 12))
#define PFN_DOWN(x)		PHYS_PFN(x)
#define PFN_UP(x)		PHYS_PFN((x) + PAGE_SIZE - 1)
#define __va(x)			((void *)(uintptr_t)(x))

#define pr_warn(fmt, ...) test_log(pr_fmt(fmt), ##__VA_ARGS__)
#define pr_info(fmt, ...) test_log(pr_fmt(fmt), ##__VA_ARGS__)
void test_log(const char *fmt, ...);

#define panic(fmt, ...) do {				\
	fprintf(stderr, "panic: " fmt, ##__VA_ARGS__);	\
	abort();					\
} while (0)

/* Formats differ in long and long long only: both are 64 bits here. */
#pragma GCC diagnostic ignored "-Wformat"

static inline int kstrtoull(const char *s, unsigned int base,
			    unsigned long long *res)
{
	char *end;

	errno = 0;
	*res = strtoull(s, &end, base);
	return errno || end == s || *end ? -EINVAL : 0;
}

#define early_param(name, fn) \
	int (*test_early_param)(char *) = fn

static inline void sort(void *base, size_t num, size_t size,
			int (*cmp)(const void *, const void *), void *swap)
{
	qsort(base, num, size, cmp);
}

#define BITS_PER_LONG	64
#define DECLARE_BITMAP(name, bits) \
	unsigned long name[((bits) + BITS_PER_LONG - 1) / BITS_PER_LONG]

static inline void __set_bit(unsigned long nr, unsigned long *map)
{
	map[nr / BITS_PER_LONG] |= 1UL << nr % BITS_PER_LONG;
}

static inline void __clear_bit(unsigned long nr, unsigned long *map)
{
	map[nr / BITS_PER_LONG] &= ~(1UL << nr % BITS_PER_LONG);
}

static inline bool test_bit(unsigned long nr, const unsigned long *map)
{
	return map[nr / BITS_PER_LONG] >> nr % BITS_PER_LONG & 1;
}

#define for_each_set_bit(i, map, bits)		\
	for (i = 0; i < (bits); i++)		\
		if (!test_bit(i, map)) {} else

/*
 * Atomics are ordered as in the kernel and not more, so that the thread sanitizer
 * finds what relies on more: those that return something are full barriers, the
 * rest order nothing unless they say so.
 */
typedef struct { int v; } atomic_t;
typedef struct { long v; } atomic_long_t;
typedef struct { long long v; } atomic64_t;

#define atomic_read(a)			__atomic_load_n(&(a)->v, __ATOMIC_RELAXED)
#define atomic_read_acquire(a)		__atomic_load_n(&(a)->v, __ATOMIC_ACQUIRE)
#define atomic_set(a, x)		__atomic_store_n(&(a)->v, x, __ATOMIC_RELAXED)
#define atomic_set_release(a, x)	__atomic_store_n(&(a)->v, x, __ATOMIC_RELEASE)
#define atomic_fetch_inc(a)		__atomic_fetch_add(&(a)->v, 1, __ATOMIC_SEQ_CST)
#define atomic_inc_return(a)		__atomic_add_fetch(&(a)->v, 1, __ATOMIC_SEQ_CST)
#define atomic_long_read(a)		atomic_read(a)
#define atomic_long_set(a, x)		atomic_set(a, x)
#define atomic_long_fetch_inc(a)	atomic_fetch_inc(a)
#define atomic_long_inc(a)		((void)__atomic_fetch_add(&(a)->v, 1, __ATOMIC_RELAXED))
#define atomic_long_add(x, a)		((void)__atomic_fetch_add(&(a)->v, x, __ATOMIC_RELAXED))
#define atomic_long_sub(x, a)		((void)__atomic_fetch_sub(&(a)->v, x, __ATOMIC_RELAXED))
#define atomic64_add(x, a)		((void)__atomic_fetch_add(&(a)->v, x, __ATOMIC_RELAXED))
#define xchg(p, v)			__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
#define READ_ONCE(x)			__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, val)		__atomic_store_n(&(x), val, __ATOMIC_RELAXED)
#define try_cmpxchg(p, old, new)	__atomic_compare_exchange_n(p, old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)
#define cmpxchg(p, old, new)		({ __typeof__(*(p)) old_ = (old); try_cmpxchg(p, &old_, new); old_; })
#define smp_load_acquire(p)		__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, val)	__atomic_store_n(p, val, __ATOMIC_RELEASE)

/* Held by one thread at a time; who spins on it or has interrupts off is for the test to tell. */
typedef struct { int v; } spinlock_t;
#define spin_lock_init(l)		((l)->v = 0)

struct cpumask { int v; };

#define DECLARE_STATIC_KEY_TRUE(name)	extern bool name
#define static_branch_unlikely(key)	(*(key))

/* Memory: what the tests say that there is. */
enum zone_type { ZONE_DMA, ZONE_DMA32, ZONE_NORMAL, ZONE_MOVABLE, MAX_NR_ZONES };

enum zone_stat_item { NR_FREE_PAGES, NR_VM_ZONE_STAT_ITEMS };

struct zone {
	int nid, idx;
	unsigned long zone_start_pfn, end_pfn;
	atomic_long_t managed_pages;
	atomic_long_t vm_stat[NR_VM_ZONE_STAT_ITEMS];
	atomic_long_t deferred_pages;
};

#define zone_page_state(zone, item)		((unsigned long)atomic_long_read(&(zone)->vm_stat[item]))
#define zone_page_state_add(n, zone, item)	atomic_long_add(n, &(zone)->vm_stat[item])
/* Of mm/internal.h. */
#define zone_deferred_pages_add(zone, n)	atomic_long_add(n, &(zone)->deferred_pages)
/* Of all zones: the test knows them. */
unsigned long global_zone_page_state(enum zone_stat_item item);

typedef struct pglist_data {
	struct zone node_zones[MAX_NR_ZONES];
	unsigned long node_start_pfn, end_pfn;
	unsigned long node_present_pages;
	unsigned long first_deferred_pfn;
} pg_data_t;

struct mem_section { unsigned long section_mem_map; };
#define SECTION_IS_ONLINE	4UL

static inline int zone_to_nid(const struct zone *z)
{
	return z->nid;
}

static inline int zone_idx(const struct zone *z)
{
	return z->idx;
}

static inline unsigned long zone_end_pfn(const struct zone *z)
{
	return z->end_pfn;
}

static inline bool populated_zone(const struct zone *z)
{
	return z->zone_start_pfn < z->end_pfn;
}

static inline unsigned long pgdat_end_pfn(const pg_data_t *p)
{
	return p->end_pfn;
}

static inline unsigned long pfn_to_section_nr(unsigned long pfn)
{
	return pfn / PAGES_PER_SECTION;
}

static inline unsigned long section_nr_to_pfn(unsigned long nr)
{
	return nr * PAGES_PER_SECTION;
}

struct memblock_region {
	phys_addr_t base, size;
	bool late;
};

struct memblock_type {
	unsigned long cnt;
	struct memblock_region *regions;
};

extern struct test_memblock { struct memblock_type reserved; } memblock;
void *memblock_alloc(phys_addr_t size, phys_addr_t align);
void *memblock_alloc_node(phys_addr_t size, phys_addr_t align, int nid);
void memblock_free(void *p, size_t size);
int memblock_reserve(phys_addr_t base, phys_addr_t size);
int memblock_phys_free(phys_addr_t base, phys_addr_t size);
bool memblock_is_region_memory(phys_addr_t base, phys_addr_t size);
bool memblock_is_region_reserved(phys_addr_t base, phys_addr_t size);
bool memblock_overlaps_region(struct memblock_type *type, phys_addr_t base,
			      phys_addr_t size);
bool node_online(int nid);
bool slab_is_available(void);

#define MEMBLOCK_NONE	0
#define memblock_is_reserved_late(r)	((r)->late)
#define for_each_reserved_mem_region(r)	\
	for (r = memblock.reserved.regions; r < memblock.reserved.regions + memblock.reserved.cnt; r++)

/* The next range of the node, or of all of them for MAX_NUMNODES, from *i on. */
bool test_next_ram(u64 *i, int node, unsigned long *start_pfn,
		   unsigned long *end_pfn, int *nid);
bool test_next_free(u64 *i, int node, phys_addr_t *start, phys_addr_t *end);

#define for_each_mem_pfn_range(i, node, s, e, n)			\
	for (u64 ram_ = ((void)(i = 0), 0); test_next_ram(&ram_, node, s, e, n); i++)
#define for_each_free_mem_range(i, node, flags, s, e, n)		\
	for (i = (flags); test_next_free(&i, node, s, e); )

enum cc_attr { CC_ATTR_GUEST_MEM_ENCRYPT };
bool cc_platform_has(enum cc_attr attr);

u32 __crc32c_le(u32 crc, const u8 *p, size_t len);
void copy_from_early_mem(void *dest, phys_addr_t src, unsigned long size);
void *early_memremap(phys_addr_t addr, unsigned long size);
void early_memunmap(void *p, unsigned long size);

#endif /* KERNEL_STUBS_H */
