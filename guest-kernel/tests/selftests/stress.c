// SPDX-License-Identifier: GPL-2.0-only
/*
 * stress-ng --vm for as long as seconds= on the kernel command line says; beside it, blocks of memory go offline and come
 * back. What goes wrong is for the kernel, or for stress-ng's own checks of what it wrote, to say.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <sys/wait.h>
#include "mode.h"
#include "tap.h"
#include "zones.h"

#define PROGRAM		"./stress-ng"
#define MOST_OFFLINE	4
#define HIGHEST		65536	/* 8 TiB of blocks of 128 MiB */

static unsigned long blocks[HIGHEST];
static unsigned int block_count;
static unsigned long offline[MOST_OFFLINE];
static unsigned int offline_count, went, came, stayed;

static long now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static pid_t start_stress(const char *seconds)
{
	pid_t child = fork();

	if (!child) {
		execl(PROGRAM, "stress-ng", "--vm", "2", "--vm-bytes", "60%", "--vm-method", "all", "--verify", "--timeout",
		      seconds, "--temp-path", "/tmp", "--metrics-brief", (char *)NULL);
		dprintf(2, "%s: %s\n", PROGRAM, strerror(errno));
		_exit(127);
	}
	return child;
}

static void find_blocks(void)
{
	for (unsigned long block = 0; block < HIGHEST; block++)
		if (is_online(block))
			blocks[block_count++] = block;
}

/* The longest offline comes back. */
static void bring_back(void)
{
	char name[64];
	int error = set_state(offline[0], "online");

	if (error) {
		snprintf(name, sizeof(name), "block %lu online", offline[0]);
		tap(false, name, strerror(error));
	}
	came += !error;
	memmove(offline, offline + 1, --offline_count * sizeof(*offline));
}

/* Any block: one that is in use may stay, after a while. */
static void take_one(unsigned int *seed)
{
	unsigned long block = blocks[rand_r(seed) % block_count];

	if (!is_online(block))
		return;
	if (set_state(block, "offline")) {
		stayed++;
		return;
	}
	went++;
	offline[offline_count++] = block;
}

static void exchange(pid_t child, long end, int *status)
{
	unsigned int seed = 1;

	while (waitpid(child, status, WNOHANG) == 0) {
		if (now() > end) {
			tap(false, "stress-ng ends in time", "it did not");
			kill(child, SIGKILL);
			waitpid(child, status, 0);
			return;
		}
		if (offline_count == MOST_OFFLINE)
			bring_back();
		take_one(&seed);
		usleep(100000);
	}
}

int main(void)
{
	char seconds[16], why[128];
	int status = -1;
	pid_t child;

	if (access(PROGRAM, X_OK)) {
		tap_skip("stress", "no stress-ng was packed: apt-get install stress-ng");
		return 4;
	}
	if (!parameter("seconds", seconds, sizeof(seconds)) || strtol(seconds, NULL, 10) < 1) {
		tap(false, "seconds= on the kernel command line", "it is missing, or no number of seconds");
		return tap_done();
	}
	find_blocks();
	child = start_stress(seconds);
	if (block_count)
		exchange(child, now() + strtol(seconds, NULL, 10) + 120, &status);
	else
		waitpid(child, &status, 0);
	while (offline_count)
		bring_back();
	snprintf(why, sizeof(why), "%u of %u times a block went offline, %u came back", went, went + stayed, came);
	printf("# %s\n", why);
	if (block_count)
		tap(went && went == came, "blocks went offline and came back", why);
	else
		tap_skip("blocks went offline and came back", "no memory hot-plug in this kernel");
	snprintf(why, sizeof(why), "status %#x", status);
	tap(!status, "stress-ng", why);
	return tap_done();
}
