// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes blocks of boot memory offline and brings them back: from the highest address down, where struct pages are set up
 * last. A block whose pages cannot all be moved may stay; that all blocks stay is a failure, and so is memory
 * that has not come back. Which blocks stay is chance: so a block that goes and comes back is no case of its
 * own, or modes would pass different numbers of them.
 */
#include <stdlib.h>
#include "tap.h"
#include "zones.h"

#define BLOCKS	8
#define HIGHEST	65536	/* 8 TiB of blocks of 128 MiB */

/* A case only if it is not @ok. */
static void expect(bool ok, unsigned int block, const char *state, int error, long total)
{
	char name[64], why[96];

	if (ok)
		return;
	snprintf(name, sizeof(name), "block %u %s", block, state);
	snprintf(why, sizeof(why), "%s, MemTotal was %ld and is %ld KiB", strerror(error), total, meminfo("MemTotal"));
	tap(false, name, why);
}

/* Whether the block went offline. */
static bool take_and_return(unsigned int block)
{
	long total = meminfo("MemTotal");
	int error = set_state(block, "offline");

	if (error == EBUSY || error == EAGAIN) {
		printf("# block %u has pages that cannot be moved\n", block);
		return false;
	}
	expect(!error && meminfo("MemTotal") < total, block, "offline", error, total);
	if (error)
		return false;

	error = set_state(block, "online");
	expect(!error && meminfo("MemTotal") == total, block, "online", error, total);
	return true;
}

int main(void)
{
	unsigned int tried = 0, taken = 0;

	if (access(MEMORY, F_OK)) {
		tap_skip("memory blocks", "no memory hot-plug in this kernel");
		return 4;
	}
	for (unsigned int block = HIGHEST; block-- > 0 && tried < BLOCKS;) {
		if (!is_online(block))
			continue;
		tried++;
		taken += take_and_return(block);
	}
	tap(taken > 0, "a block went offline", "none of the highest ones did");
	tap(!tap_failures, "what went came back", "see above");
	return tap_done();
}
