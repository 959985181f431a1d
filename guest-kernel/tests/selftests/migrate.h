/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory that is moved between two nodes, and whether its content is still right. */
#ifndef SELFTESTS_MIGRATE_H
#define SELFTESTS_MIGRATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "files.h"

#define THREADS		"/proc/sys/vm/migrate_copy_threads"
#define PAGE		4096UL
#define HUGE		(2UL << 20)
#define MPOL_BIND	2
#define MPOL_MF_MOVE	2

struct memory {
	char *at;
	size_t size, step;	/* bytes: of all, of a page */
};

static inline uint64_t value(size_t offset)
{
	return (offset * 0x9e3779b97f4a7c15UL) ^ offset;
}

static inline void fill(struct memory *m)
{
	for (size_t i = 0; i < m->size; i += 8)
		*(uint64_t *)(m->at + i) = value(i);
}

static inline bool is_whole(const struct memory *m)
{
	for (size_t i = 0; i < m->size; i += 8)
		if (*(uint64_t *)(m->at + i) != value(i))
			return false;
	return true;
}

/* Anonymous memory of node 0, filled. */
static inline struct memory take(size_t pages, size_t step)
{
	struct memory m = { .size = pages * step, .step = step };
	unsigned long node = 1;
	uintptr_t at = (uintptr_t)mmap(NULL, m.size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	m.at = (char *)((at + HUGE - 1) & ~(HUGE - 1));
	madvise(m.at, m.size, step == HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	syscall(SYS_mbind, m.at, m.size, MPOL_BIND, &node, 64, 0);
	fill(&m);
	return m;
}

static inline void give_back(struct memory *m)
{
	munmap(m->at, m->size);
}

/* Of which clock move() says how long it took. */
static clockid_t move_clock = CLOCK_MONOTONIC;

static inline long now(void)
{
	struct timespec t;

	clock_gettime(move_clock, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Moves all of it. Returns how many nanoseconds that took, or -1 if a page is somewhere else afterwards. */
static inline long move(const struct memory *m, int node)
{
	size_t count = m->size / m->step;
	void **pages = calloc(count, sizeof(*pages));
	int *nodes = calloc(count, sizeof(*nodes)), *status = calloc(count, sizeof(*status));
	long took;

	for (size_t i = 0; i < count; i++) {
		pages[i] = m->at + i * m->step;
		nodes[i] = node;
		status[i] = -1;
	}
	took = now();
	if (syscall(SYS_move_pages, 0, count, pages, nodes, status, MPOL_MF_MOVE))
		took = -1;
	else
		took = now() - took;
	for (size_t i = 0; i < count; i++)
		if (status[i] != node)
			took = -1;
	free(pages);
	free(nodes);
	free(status);
	return took;
}

/* Pages that several threads have copied. */
static inline long shared(void)
{
	FILE *f = fopen("/proc/vmstat", "r");
	char line[128];
	long pages = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "pgmigrate_shared %ld", &pages);
	if (f)
		fclose(f);
	return pages;
}

/* Whether there are two nodes, and pages are counted that several threads have copied. */
static inline bool can_move(void)
{
	return !access(THREADS, F_OK) && !access("/sys/devices/system/node/node1", F_OK) && shared() >= 0;
}

#endif
