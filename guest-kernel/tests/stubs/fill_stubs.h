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
void prepare_deferred_pages(unsigned long pfn, unsigned long end_pfn);
void free_deferred_pages(struct zone *zone, unsigned long pfn, unsigned long end_pfn);

void test_irq_save(void);
void test_irq_restore(void);
#define local_irq_save(flags)		(flags = 0, test_irq_save())
#define local_irq_restore(flags)	((void)flags, test_irq_restore())
void cond_resched(void);
void cpu_relax(void);
u64 local_clock(void);

#endif /* FILL_STUBS_H */
