/* SPDX-License-Identifier: GPL-2.0-only */
/* padata for fill_test.c: as many threads as the job asks for, which dawdle if their caller does. */
#ifndef FAKE_PADATA_H
#define FAKE_PADATA_H

/* padata: threads that take pieces of the job, up to four for each of them. */
struct padata {
	struct padata_mt_job *job;
	pthread_mutex_t lock;
	unsigned long chunk;
	u64 seed;
	bool dawdles;
};

static void *padata_thread(void *arg)
{
	struct padata *p = arg;
	struct padata_mt_job *job = p->job;

	pthread_mutex_lock(&p->lock);
	thread_rng = p->seed++;
	dawdles = p->dawdles;
	while (job->size) {
		unsigned long start = job->start, size = min(p->chunk, job->size);

		job->start += size;
		job->size -= size;
		pthread_mutex_unlock(&p->lock);
		job->thread_fn(start, start + size, job->fn_arg);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

void padata_do_multithreaded(struct padata_mt_job *job)
{
	struct padata p = { job, PTHREAD_MUTEX_INITIALIZER, .seed = thread_random(1 << 30),
			    .dawdles = dawdles };
	pthread_t threads[4];
	int i;

	CHECK(job->max_threads >= 1 && job->max_threads <= (int)ARRAY_SIZE(threads));
	CHECK(job->align == 1 && job->min_chunk == 1);
	p.chunk = max(job->size / (4 * job->max_threads), job->min_chunk);
	for (i = 0; i < job->max_threads; i++)
		CHECK(!pthread_create(&threads[i], NULL, padata_thread, &p));
	for (i = 0; i < job->max_threads; i++)
		CHECK(!pthread_join(threads[i], NULL));
	dawdles = p.dawdles;
}

#endif /* FAKE_PADATA_H */
