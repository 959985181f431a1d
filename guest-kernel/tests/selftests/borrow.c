// SPDX-License-Identifier: GPL-2.0-only
/*
 * Page tables that idle CPUs have borrowed while they are freed: programs start and end on all CPUs, threads wait for
 * each other, and CPUs go offline and come back, for 20 seconds, or as long as seconds= on the kernel command line says.
 * What goes wrong is for the kernel to say (CONFIG_DEBUG_VM_SHOOT_LAZIES).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include "mode.h"
#include "tap.h"

#define SECONDS		20
#define CPU_STATE	"/sys/devices/system/cpu/cpu%ld/online"
#define MOST_WORKERS	64
#define TURNS		200
#define AREA		(4UL << 20)

static long until;
static long *done;	/* of each worker, shared with it */

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static void *answer(void *ends)
{
	int *end = ends;
	char byte;

	for (int i = 0; i < TURNS && read(end[0], &byte, 1) == 1; i++)
		if (write(end[1], &byte, 1) != 1)
			break;
	return NULL;
}

/* Two threads hand each other a byte. When the process ends, CPUs that were idle in between have its page tables. */
static void take_turns(void)
{
	int there[2], back[2], answerer[2];
	pthread_t thread;
	char byte = 7;

	if (pipe(there) || pipe(back))
		_exit(1);
	answerer[0] = there[0];
	answerer[1] = back[1];
	if (pthread_create(&thread, NULL, answer, answerer))
		_exit(1);
	for (int i = 0; i < TURNS; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			_exit(1);
	pthread_join(thread, NULL);
}

static void touch(void)
{
	char *area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		_exit(1);
	for (size_t i = 0; i < AREA; i += 4096)
		area[i] = 1;
}

/* What a child does: it ends at once, after a while, as another program, or by a signal. */
static void live(unsigned int kind)
{
	switch (kind % 5) {
	case 0:
		take_turns();
		break;
	case 1:
		touch();
		break;
	case 2:
		execl("/proc/self/exe", "borrow", "end", (char *)NULL);
		_exit(1);
	case 3:
		usleep(1000);
		break;
	case 4:
		kill(getpid(), SIGKILL);
	}
	_exit(0);
}

/* One child after another. Ends with 1 if one of them did not end as it should have. */
static void work(unsigned int worker)
{
	int status;

	for (unsigned int kind = worker; now() < until; kind++) {
		pid_t child = fork();

		if (!child)
			live(kind);
		if (child < 0 || waitpid(child, &status, 0) != child)
			_exit(1);
		if (kind % 5 == 4 ? !WIFSIGNALED(status) : status)
			_exit(1);
		done[worker]++;
	}
	_exit(0);
}

/* CPUs but the first go offline and come back, one after another, until the time is over. Returns how often. */
static long plug(long cpus)
{
	char path[64];
	long changes = 0;

	for (long cpu = 1; now() < until && cpus > 1; cpu = cpu + 1 < cpus ? cpu + 1 : 1) {
		snprintf(path, sizeof(path), CPU_STATE, cpu);
		changes += !write_text(path, "0");
		usleep(50000);
		changes += !write_text(path, "1");
		usleep(50000);
	}
	return changes;
}

int main(int argc, char **argv)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), workers = 2 * cpus, all = 0, changes;
	char seconds[16], why[96];
	bool ended = true;
	int status;

	if (argc > 1 && !strcmp(argv[1], "end"))
		return 0;
	if (!parameter("seconds", seconds, sizeof(seconds)))
		snprintf(seconds, sizeof(seconds), "%d", SECONDS);
	until = now() + strtol(seconds, NULL, 10);
	workers = workers < MOST_WORKERS ? workers : MOST_WORKERS;
	done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (long worker = 0; worker < workers; worker++)
		if (!fork())
			work(worker);
	changes = plug(cpus);
	while (wait(&status) > 0)
		ended &= !status;
	for (long worker = 0; worker < workers; worker++)
		all += done[worker] > 0 ? done[worker] : -1000000;
	snprintf(why, sizeof(why), "%ld processes by %ld workers, a worker ended badly: %d", all, workers, !ended);
	tap(ended && all > 0, "processes come and go", why);
	snprintf(why, sizeof(why), "%ld times", changes);
	tap(cpus == 1 || changes > 0, "CPUs go and come", why);
	printf("# %ld processes, CPUs %ld times\n", all, changes);
	return tap_done();
}
