// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long it takes to move memory, by one thread, which is as without the series, and by as many as are of use, by turns:
 * with move_pages(), by size and number of pages, on idle and on busy CPUs; and 2 GiB because their blocks go offline. It
 * fails where more threads take longer, or do not help enough. With the argument "threads": by so many threads in turn.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include "migrate.h"
#include "tap.h"
#include "zones.h"

#define ROUNDS		256	/* of what takes a moment; the less it takes, the more does chance */
#define FEW_ROUNDS	12	/* at least, of what takes long */
#define PATIENCE	8	/* times as many, where chance could still decide */
#define MOST_ROUNDS	(PATIENCE * ROUNDS)
#define MOVED		(4UL << 30)	/* in between so many bytes in all */
#define OFFLINE		(2UL << 30)
#define MOST_THREADS	16	/* that the sysctl takes */
#define NO_BLOCK	4096	/* larger than any block's number here */
#define ONE		0
#define SEVERAL		1

static const char *threads[] = { [ONE] = "1", [SEVERAL] = "0" };
static atomic_bool stop;

struct estimate {
	double median, low, high;
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void say_samples(FILE *to, const char *name, const long ns[MOST_ROUNDS], int rounds)
{
	fprintf(to, ",\"%s_us\":[", name);
	for (int i = 0; i < rounds; i++)
		fprintf(to, "%s%ld", i ? "," : "", ns[i] / 1000);
	fprintf(to, "]");
}

/* For whoever reads the console: all that was measured. */
static void report(const char *name, double ratio, long pages, long took[2][MOST_ROUNDS], int rounds)
{
	FILE *console = fopen("/dev/console", "w");

	if (!console)
		return;
	fprintf(console, "FLATBOOT {\"check\":\"measured\",\"name\":\"%s\",\"ratio\":%.3f,\"shared\":%ld", name, ratio, pages);
	say_samples(console, "one", took[ONE], rounds);
	say_samples(console, "several", took[SEVERAL], rounds);
	fprintf(console, "}\n");
	fclose(console);
}

/*
 * The time by one thread over that by several: of two rounds each, as what changes from round to round is in both, and as
 * each way has gone to both nodes then, of which one may be slower. The median, and where it is with a confidence of 95 in
 * 100: how many are below the true one is like the tosses of a coin, and twice their standard deviation is the square root of
 * their number.
 */
static struct estimate ratio_by_two_rounds(long took[2][MOST_ROUNDS], int rounds)
{
	double ratios[MOST_ROUNDS / 2];
	int nr = rounds / 2, below = (nr - 1) / 2, above = nr / 2, reach = 1;

	while ((reach + 1) * (reach + 1) <= nr)
		reach++;
	for (int i = 0; i < nr; i++)
		ratios[i] = (double)(took[ONE][2 * i] + took[ONE][2 * i + 1]) /
			    (took[SEVERAL][2 * i] + took[SEVERAL][2 * i + 1]);
	qsort(ratios, nr, sizeof(*ratios), by_size);
	return (struct estimate){ (ratios[below] + ratios[above]) / 2, ratios[below - reach], ratios[above + reach] };
}

/* An even number. */
static int rounds_of(size_t size)
{
	size_t rounds = MOVED / size & ~1UL;

	return rounds > ROUNDS ? ROUNDS : rounds < FEW_ROUNDS ? FEW_ROUNDS : rounds;
}

/*
 * One cell of the table. @once moves all of it and says how many nanoseconds that took, or -1. The first round is a warm-up;
 * who comes first changes with each, and so does the node that it is moved to. There are twice as many rounds, and again, as
 * long as it may be chance that @least is not reached.
 */
static void measure(const char *name, const struct memory *m, long (*once)(const struct memory *m), double least)
{
	int rounds = rounds_of(m->size), most = PATIENCE * rounds;
	struct estimate ratio = { 0 };
	long took[2][MOST_ROUNDS], by_several = shared();
	bool moved = true;
	char why[96];

	for (int round = -1; round < rounds; round++) {
		for (int turn = 0; turn < 2; turn++) {
			int way = (turn + round) & 1 ? SEVERAL : ONE;
			long ns;

			write_text(THREADS, threads[way]);
			usleep(2000);
			ns = once(m);
			moved &= ns >= 0;
			if (round >= 0)
				took[way][round] = ns;
		}
		if (round + 1 < rounds)
			continue;
		ratio = ratio_by_two_rounds(took, rounds);
		if (moved && ratio.low < least && 2 * rounds <= most)
			rounds *= 2;
	}
	by_several = shared() - by_several;
	report(name, ratio.median, by_several, took, rounds);
	snprintf(why, sizeof(why), "%.3f (%.3f to %.3f), %.2f at least; all moved: %d", ratio.median, ratio.low, ratio.high,
		 least, moved);
	if (move_clock != CLOCK_MONOTONIC && by_several)
		tap(false, name, "somebody helped, though all CPUs were busy");
	else
		tap(moved && is_whole(m) && ratio.median >= least, name, why);
}

/* To the other node than the one before. */
static long there_or_back(const struct memory *m)
{
	static int node;

	node ^= 1;
	return move(m, node);
}

static void measure_moves(const char *state, size_t pages, size_t step, double least)
{
	struct memory m = take(pages, step);
	char name[64];

	snprintf(name, sizeof(name), "%s, %zu x %zu KiB", state, pages, step >> 10);
	measure(name, &m, there_or_back, least);
	give_back(&m);
}

static void measure_sizes(const char *state, double help)
{
	for (size_t pages = 32; pages <= 1024; pages *= 2)
		measure_moves(state, pages, PAGE, 0.95);
	for (size_t pages = 1; pages <= 256; pages *= 4)
		measure_moves(state, pages, HUGE, pages >= 64 ? help : 0.95);
}

/* By 2, 4, 8 and 16 threads, as far as there are CPUs. */
static int measure_by_threads(void)
{
	char count[24], state[32];

	for (long nr = 2; nr <= MOST_THREADS && nr <= sysconf(_SC_NPROCESSORS_ONLN); nr *= 2) {
		snprintf(count, sizeof(count), "%ld", nr);
		snprintf(state, sizeof(state), "%ld threads", nr);
		threads[SEVERAL] = count;
		measure_moves(state, 1024, PAGE, 0.95);
		for (size_t pages = 16; pages <= 256; pages *= 4)
			measure_moves(state, pages, HUGE, 0.95);
	}
	return tap_done();
}

static void *spin(void *unused)
{
	while (!stop)
		;
	return unused;
}

/* By the caller's own time on a CPU: when it has one is chance, and nobody is to help it. */
static void measure_on_busy_cpus(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t busy[64];

	cpus = cpus < 64 ? cpus : 64;
	for (long i = 0; i < cpus; i++)
		pthread_create(&busy[i], NULL, spin, NULL);
	move_clock = CLOCK_THREAD_CPUTIME_ID;
	measure_sizes("busy", 0.95);
	move_clock = CLOCK_MONOTONIC;
	stop = true;
	for (long i = 0; i < cpus; i++)
		pthread_join(busy[i], NULL);
}

/* How many bytes of @m each block of memory has: for those who may see page frame numbers. */
static void count_by_block(const struct memory *m, size_t counts[NO_BLOCK])
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entries[HUGE / PAGE];
	char size[32];
	unsigned long block = !read_line(MEMORY "/block_size_bytes", size, sizeof(size)) ? strtoul(size, NULL, 16) : 0;

	memset(counts, 0, NO_BLOCK * sizeof(*counts));
	for (size_t at = 0; block && at < m->size; at += HUGE) {
		if (pread(fd, entries, sizeof(entries), (uintptr_t)(m->at + at) / PAGE * 8) != sizeof(entries))
			break;
		for (size_t i = 0; i < HUGE / PAGE; i++) {
			uint64_t in = (entries[i] & ((1UL << 55) - 1)) * PAGE / block;

			counts[in < NO_BLOCK ? in : 0] += PAGE;
		}
	}
	close(fd);
}

static unsigned int fullest(const size_t counts[NO_BLOCK])
{
	unsigned int found = 0;

	for (unsigned int block = 1; block < NO_BLOCK; block++)
		if (counts[block] > counts[found])
			found = block;
	return found;
}

/*
 * Blocks go offline, the fullest first, until what they had of @m is OFFLINE; they come back, and so does @m to them.
 * One with a page that cannot be moved stays.
 */
static long take_offline(const struct memory *m)
{
	static size_t counts[NO_BLOCK];
	unsigned int gone[NO_BLOCK], nr = 0;
	size_t left = OFFLINE;
	long took = 0;

	count_by_block(m, counts);
	while (left) {
		unsigned int block = fullest(counts);
		long begin = now();

		if (!counts[block])
			break;
		if (!set_state(block, "offline")) {
			took += now() - begin;
			left -= counts[block] < left ? counts[block] : left;
			gone[nr++] = block;
		}
		counts[block] = 0;
	}
	while (nr)
		set_state(gone[--nr], "online");
	return move(m, 1) >= 0 && !left ? took : -1;
}

static void measure_offlining(const char *name, size_t step)
{
	struct memory m = take((OFFLINE + OFFLINE / 4) / step, step);

	if (move(&m, 1) < 0)
		tap(false, name, "node 1 has no room");
	else
		measure(name, &m, take_offline, 1.3);
	give_back(&m);
}

int main(int argc, char **argv)
{
	if (!can_move()) {
		tap_skip("moving pages", "no " THREADS ", no second node, or no counts of events");
		return 4;
	}
	if (argc > 1 && !strcmp(argv[1], "threads"))
		return measure_by_threads();
	measure_sizes("idle", 1.5);
	measure_on_busy_cpus();
	measure_offlining("2 GiB of huge pages offline", HUGE);
	measure_offlining("2 GiB of base pages offline", PAGE);
	return tap_done();
}
