/* SPDX-License-Identifier: GPL-2.0-only */
/* What mm/memmap_fill.c needs beyond that, of mm/internal.h and of the scheduler. */
#ifndef FILL_STUBS_H
#define FILL_STUBS_H

#include "kernel_stubs.h"

struct padata_mt_job {
	void (*thread_fn)(unsigned long start, unsigned long end, void *arg);
	void *fn_arg;
	unsigned long start, size, align, min_chunk;
	int max_threads;
	bool background;
};

void padata_do_multithreaded(struct padata_mt_job *job);

void init_reserved_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn);
void init_deferred_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn);
void free_deferred_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn);

void test_lock(spinlock_t *lock);
bool test_trylock(spinlock_t *lock);
void test_unlock(spinlock_t *lock);
#define spin_lock_irqsave(l, flags)		(flags = 0, test_lock(l))
#define spin_trylock_irqsave(l, flags)		(flags = 0, test_trylock(l))
#define spin_unlock_irqrestore(l, flags)	((void)flags, test_unlock(l))
void cond_resched(void);

#endif /* FILL_STUBS_H */
