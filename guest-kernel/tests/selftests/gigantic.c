// SPDX-License-Identifier: GPL-2.0-only
/*
 * Asks for a page of 1 GiB, a run of page frames that the page allocator has no block for, while memory is deferred. What
 * the run needs has to be set up, and no more.
 */
#include <stdlib.h>
#include "mode.h"
#include "tap.h"

#define POOL	"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
#define RUN_KIB	(1L << 20)
#define MORE_KIB (256L << 10)	/* what others may have set up meanwhile: two sections */

static long pool(void)
{
	char line[32];

	return read_line(POOL, line, sizeof(line)) ? -1 : strtol(line, NULL, 10);
}

/* How much of it was deferred is only known while nobody sets up memory in the background. */
static bool is_on_demand(void)
{
	struct mode mode = {};

	read_mode(&mode);
	return !strcmp(mode.effect, "ondemand");
}

int main(void)
{
	long before = meminfo("MemDeferred"), after;
	char why[128];
	int error;

	if (pool() < 0) {
		tap_skip("gigantic", "no pages of 1 GiB in this kernel or on this processor");
		return 4;
	}
	error = write_text(POOL, "1");
	after = meminfo("MemDeferred");
	snprintf(why, sizeof(why), "%ld pages, %s", pool(), strerror(error));
	tap(!error && pool() == 1, "a page of 1 GiB", why);

	snprintf(why, sizeof(why), "%ld KiB were deferred, %ld are", before, after);
	if (!is_on_demand())
		tap_skip("only the run was set up", "memory is not set up on demand");
	else if (before < RUN_KIB + 2 * MORE_KIB)
		tap(false, "more than a run is deferred", why);
	else
		tap(before - after <= RUN_KIB + MORE_KIB, "only the run was set up", why);

	error = write_text(POOL, "0");
	snprintf(why, sizeof(why), "%ld pages, %s", pool(), strerror(error));
	tap(!error && !pool(), "the page is given back", why);
	return tap_done();
}
