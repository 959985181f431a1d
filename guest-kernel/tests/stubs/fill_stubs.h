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

/* No page of these tests was held. */
#define pfn_to_page(pfn)			((struct page *)NULL)
#define SetPageVmemmapSelfHosted(page)		((void)(page), abort())

/* A CPU's list of free pages, which may have blocks of its own once init runs. */
struct list_head { struct list_head *next, *prev; };
enum system_states { SYSTEM_BOOTING, SYSTEM_RUNNING };
extern enum system_states system_state;
int list_deferred_pages(struct zone *zone, unsigned long start_pfn, unsigned int order,
			struct list_head *list);
bool pcplist_has_movable(struct zone *zone, unsigned int order);
bool grow_pcplist(struct zone *zone, unsigned int order, unsigned int blocks);
/* Not in every series. */
__attribute__((weak)) bool memmap_grow_list(struct zone *zone, unsigned int order,
					    struct list_head *list, int *listed);

void test_lock(spinlock_t *lock);
bool test_trylock(spinlock_t *lock);
void test_unlock(spinlock_t *lock);
#define spin_lock_irqsave(l, flags)		(flags = 0, test_lock(l))
#define spin_trylock_irqsave(l, flags)		(flags = 0, test_trylock(l))
#define spin_unlock_irqrestore(l, flags)	((void)flags, test_unlock(l))
void cond_resched(void);

#endif /* FILL_STUBS_H */
