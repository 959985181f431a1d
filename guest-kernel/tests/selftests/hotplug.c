// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes blocks of boot memory offline and brings them back: from the highest address down, where struct pages are set up
 * last. A block whose pages cannot all be moved may stay; that all blocks stay is a failure, and so is memory
 * that has not come back.
 */
#include <stdlib.h>
#include "tap.h"
#include "zones.h"

#define BLOCKS	8
#define HIGHEST	65536	/* 8 TiB of blocks of 128 MiB */

/* Whether the block went offline. */
static bool take_and_return(unsigned int block)
{
	long total = meminfo("MemTotal");
	char name[64], why[96];
	int error = set_state(block, "offline");

	snprintf(name, sizeof(name), "block %u offline", block);
	if (error == EBUSY || error == EAGAIN) {
		tap_skip(name, "it has pages that cannot be moved");
		return false;
	}
	snprintf(why, sizeof(why), "%s, MemTotal was %ld and is %ld KiB", strerror(error), total, meminfo("MemTotal"));
	tap(!error && meminfo("MemTotal") < total, name, why);
	if (error)
		return false;

	error = set_state(block, "online");
	snprintf(name, sizeof(name), "block %u online", block);
	snprintf(why, sizeof(why), "%s, MemTotal was %ld and is %ld KiB", strerror(error), total, meminfo("MemTotal"));
	tap(!error && meminfo("MemTotal") == total, name, why);
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
	return tap_done();
}
