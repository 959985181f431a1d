// SPDX-License-Identifier: GPL-2.0-only
/*
 * Moves memory between two nodes, by one thread and by several (vm.migrate_copy_threads), and looks at its content: base
 * and huge pages, while others write to them, of files, pinned, on some of the CPUs, and in cgroups whose CPU time is limited.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include "migrate.h"
#include "tap.h"

#define CGROUPS		"/tmp/cgroup"
#define CPU_MAX		CGROUPS "/limited/cpu.max"
#define CPU_IDLE	CGROUPS "/limited/cpu.idle"
#define WAYS		30	/* back and forth while somebody writes */

/* Somebody who counts on every page, in no order, while they are moved. */
static struct memory counted;
static uint32_t *counts;
static atomic_bool stop;

static uint32_t *counter(size_t page)
{
	return (uint32_t *)(counted.at + page * PAGE + 64);
}

static void *count(void *unused)
{
	size_t pages = counted.size / PAGE;

	for (uint32_t x = 1; !stop; x = x * 1103515245 + 12345) {
		size_t page = (x >> 8) % pages;

		++*counter(page);
		counts[page]++;
	}
	return unused;
}

static void moves_while_written_to(const char *name, size_t step)
{
	size_t pages, wrong = 0;
	bool moved = true;
	pthread_t writer;
	char why[96];

	counted = take((32UL << 20) / step, step);
	pages = counted.size / PAGE;
	counts = calloc(pages, sizeof(*counts));
	for (size_t i = 0; i < pages; i++)
		*counter(i) = 0;
	stop = false;
	pthread_create(&writer, NULL, count, NULL);
	for (int i = 0; i < WAYS; i++)
		moved &= move(&counted, (i + 1) % 2) >= 0;
	stop = true;
	pthread_join(writer, NULL);
	for (size_t i = 0; i < pages; i++)
		wrong += *counter(i) != counts[i];
	snprintf(why, sizeof(why), "%zu of %zu pages have another count, %s", wrong, pages, moved ? "all moved" : "some did not move");
	tap(moved && !wrong, name, why);
	free(counts);
	give_back(&counted);
}

/* Whether several threads took part if they could, and none if not; and the content. */
static void moves(const char *name, size_t pages, size_t step, const char *threads)
{
	struct memory m = take(pages, step);
	long before = shared(), by_several;
	bool moved, several = strcmp(threads, "1");
	char why[96];

	write_text(THREADS, threads);
	moved = move(&m, 1) >= 0 && move(&m, 0) >= 0;
	by_several = shared() - before;
	write_text(THREADS, "0");
	snprintf(why, sizeof(why), "moved: %d, %ld pages copied by several threads, content %s", moved, by_several,
		 is_whole(&m) ? "right" : "wrong");
	tap(moved && is_whole(&m) && several == (by_several > 0), name, why);
	give_back(&m);
}

/* Pages of a file in memory, and what a pipe holds of them, which must stay. */
static void file(void)
{
	int fd = open("/tmp/.migrate", O_RDWR | O_CREAT | O_EXCL, 0600), ends[2];
	struct memory m = { .size = 32UL << 20, .step = PAGE };
	struct memory held = { .size = 8 * PAGE, .step = PAGE };
	struct { void *at; size_t size; } piece;
	bool stayed;

	unlink("/tmp/.migrate");
	if (fd < 0 || ftruncate(fd, m.size) || pipe(ends)) {
		tap(false, "pages of a file", strerror(errno));
		return;
	}
	m.at = mmap(NULL, m.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	fill(&m);
	write_text(THREADS, "2");
	tap(move(&m, 1) >= 0 && move(&m, 0) >= 0 && move(&m, 1) >= 0 && is_whole(&m), "pages of a file", "not moved, or wrong");
	held.at = m.at;
	piece.at = m.at;
	piece.size = held.size;
	syscall(SYS_vmsplice, ends[1], &piece, 1, 0);
	stayed = move(&held, 0) < 0;
	tap(stayed && is_whole(&m), "pages that a pipe holds stay", stayed ? "content is wrong" : "they were moved");
	write_text(THREADS, "0");
	munmap(m.at, m.size);
	close(ends[0]);
	close(ends[1]);
	close(fd);
}

/* Helpers run anywhere: who may not has none, whatever is set. On all CPUs it has. */
static void on_some_cpus(const char *name, const char *threads)
{
	/* Few helpers at a time: the first CPUs are enough for them. */
	struct memory m = take(8192, PAGE);
	long before, by_several, helped;
	cpu_set_t all, some;
	char why[96];

	write_text(THREADS, threads);
	sched_getaffinity(0, sizeof(all), &all);
	some = all;
	CPU_CLR(CPU_COUNT(&all) - 1, &some);
	before = shared();
	/* Whoever is idle is seen at one moment. */
	for (int i = 0; i < 20; i++)
		move(&m, (i + 1) % 2);
	helped = shared() - before;
	sched_setaffinity(0, sizeof(some), &some);
	before = shared();
	for (int i = 0; i < 20; i++)
		move(&m, (i + 1) % 2);
	by_several = shared() - before;
	sched_setaffinity(0, sizeof(all), &all);
	write_text(THREADS, "0");
	snprintf(why, sizeof(why), "%ld pages copied by several threads, and %ld on all CPUs", by_several, helped);
	tap(helped && !by_several && is_whole(&m), name, why);
	give_back(&m);
}

static long usage_us(void)
{
	char line[64];
	long us = -1;

	if (!read_line(CGROUPS "/limited/cpu.stat", line, sizeof(line)))
		sscanf(line, "usage_usec %ld", &us);
	return us;
}

static long own_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

/* Two threads for a while; whether helpers were there, and their time is the cgroup's. */
static void moves_in_cgroup(const char *name, const char *file, const char *value, bool helped)
{
	struct memory m = take(16, HUGE);
	long before = shared(), own = own_us(), all = usage_us(), by_several;
	char why[128];

	write_text(file, value);
	for (int i = 0; i < 10; i++)
		move(&m, (i + 1) % 2);
	by_several = shared() - before;
	own = own_us() - own;
	all = usage_us() - all;
	snprintf(why, sizeof(why), "%ld pages copied by several threads, %ld us are charged, %ld us are the caller's own",
		 by_several, all, own);
	/* What is charged is not exactly what the process itself counts. */
	tap(helped ? by_several > 0 && all > own + own / 10 : !by_several && all < own + own / 10, name, why);
	give_back(&m);
}

static void cgroup(void)
{
	mkdir(CGROUPS, 0755);
	if (mount("cgroup", CGROUPS, "cgroup2", 0, NULL) || write_text(CGROUPS "/cgroup.subtree_control", "+cpu") ||
	    mkdir(CGROUPS "/limited", 0755) || access(CPU_MAX, F_OK)) {
		tap_skip("in a cgroup with limited CPU time", "no such cgroups in this kernel");
		return;
	}
	write_text(CGROUPS "/limited/cgroup.procs", "0");
	write_text(THREADS, "2");
	moves_in_cgroup("in a cgroup with limited CPU time nobody helps", CPU_MAX, "80000 100000", false);
	moves_in_cgroup("in one without a limit helpers' time is charged to it", CPU_MAX, "max", true);
	moves_in_cgroup("in an idle cgroup nobody helps", CPU_IDLE, "1", false);
	write_text(CPU_IDLE, "0");
	write_text(THREADS, "0");
	write_text(CGROUPS "/cgroup.procs", "0");
}

int main(void)
{
	if (!can_move()) {
		tap_skip("moving pages", "no " THREADS ", no second node, or no counts of events");
		return 4;
	}
	tap(write_text(THREADS, "17") == EINVAL, "17 threads are refused", "they are not");
	moves("base pages by one thread", 8192, PAGE, "1");
	moves("base pages by two threads", 8192, PAGE, "2");
	moves("huge pages by one thread", 16, HUGE, "1");
	moves("huge pages by two threads", 16, HUGE, "2");
	moves("huge pages by sixteen threads", 16, HUGE, "16");
	write_text(THREADS, "2");
	moves_while_written_to("base pages that are written to", PAGE);
	moves_while_written_to("huge pages that are written to", HUGE);
	write_text(THREADS, "0");
	file();
	on_some_cpus("nobody helps who may not run on the last CPU", "0");
	on_some_cpus("nor if two threads are set", "2");
	cgroup();
	return tap_done();
}
