/* SPDX-License-Identifier: GPL-2.0-only */
/* The little of the kernel that the files under test need, for user space. */
#ifndef KERNEL_STUBS_H
#define KERNEL_STUBS_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
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
#define IS_ALIGNED(x, a)	(((x) & ((a) - 1)) == 0)
#define ALIGN(x, a)		(((x) + (a) - 1) & ~((u64)(a) - 1))
#define PAGE_SIZE		4096UL
#define PAGES_PER_SECTION	32768UL
#define SMP_CACHE_BYTES		64
#define MAX_NUMNODES		64
#define PFN_PHYS(x)		((u64)(x) << 12)

#define pr_warn(fmt, ...) test_log(pr_fmt(fmt), ##__VA_ARGS__)
#define pr_info(fmt, ...) test_log(pr_fmt(fmt), ##__VA_ARGS__)
void test_log(const char *fmt, ...);

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

#define GFP_KERNEL	0
#define __GFP_NOFAIL	1
#define __GFP_NOWARN	0
#define max(a, b)	((a) > (b) ? (a) : (b))
#define min(a, b)	((a) < (b) ? (a) : (b))
#define PHYS_PFN(x)	((unsigned long)((x) >> 12))
#define U64_MAX		UINT64_MAX

typedef struct { long v; } atomic_long_t;
typedef struct { u64 v; } atomic64_t;

void *kzalloc(size_t size, int gfp);
void *kvcalloc(size_t n, size_t size, int gfp);
void kvfree(const void *p);

struct zone { int nid; unsigned long zone_start_pfn, end_pfn; };

static inline int zone_to_nid(const struct zone *z)
{
	return z->nid;
}

static inline unsigned long zone_end_pfn(const struct zone *z)
{
	return z->end_pfn;
}

static inline unsigned long pfn_to_section_nr(unsigned long pfn)
{
	return pfn / PAGES_PER_SECTION;
}

static inline unsigned long section_nr_to_pfn(unsigned long nr)
{
	return nr * PAGES_PER_SECTION;
}

void __next_mem_pfn_range_in_zone(u64 *idx, struct zone *zone,
				  unsigned long *spfn, unsigned long *epfn);

#define early_param(name, fn) \
	int (*test_early_param)(char *) = fn

u32 __crc32c_le(u32 crc, const u8 *p, size_t len);
void copy_from_early_mem(void *dest, phys_addr_t src, unsigned long size);

struct memblock_type { int unused; };
extern struct test_memblock { struct memblock_type reserved; } memblock;
void *memblock_alloc(phys_addr_t size, phys_addr_t align);
void memblock_free(void *p, size_t size);
int memblock_reserve(phys_addr_t base, phys_addr_t size);
int memblock_phys_free(phys_addr_t base, phys_addr_t size);
bool memblock_is_region_reserved(phys_addr_t base, phys_addr_t size);
bool memblock_overlaps_region(struct memblock_type *type, phys_addr_t base,
			      phys_addr_t size);
bool node_online(int nid);

struct test_range { u64 start, end; int nid; };
extern struct test_range test_ram[];
extern int test_nr_ram;

#define for_each_mem_pfn_range(i, node, s, e, n)			\
	for (i = 0; i < test_nr_ram &&					\
	     (*(s) = test_ram[i].start >> 12, *(e) = test_ram[i].end >> 12, \
	      *(n) = test_ram[i].nid, true); i++)

#endif /* KERNEL_STUBS_H */
