/* SPDX-License-Identifier: GPL-2.0-only */
/* Zones as /proc/zoneinfo shows them, of the first node, and blocks of memory as sysfs does. */
#ifndef SELFTESTS_ZONES_H
#define SELFTESTS_ZONES_H

#include <stdlib.h>
#include "files.h"

#define MEMORY	"/sys/devices/system/memory"

/* In page frames. */
struct zone {
	unsigned long start, spanned, present;
};

/* The zone called @name; all zero if there is none. */
static inline struct zone read_zone(const char *name)
{
	FILE *f = fopen("/proc/zoneinfo", "r");
	struct zone zone = {};
	char line[128], found[32];
	int node, inside = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "Node %d, zone %31s", &node, found) == 2)
			inside = !node && !strcmp(found, name);
		if (!inside)
			continue;
		sscanf(line, " start_pfn: %lu", &zone.start);
		sscanf(line, " spanned %lu", &zone.spanned);
		sscanf(line, " present %lu", &zone.present);
	}
	if (f)
		fclose(f);
	return zone;
}

/* Bytes of a block, 0 if this kernel has no memory hot-plug. */
static inline unsigned long block_bytes(void)
{
	char line[32];

	return read_line(MEMORY "/block_size_bytes", line, sizeof(line)) ? 0 : strtoul(line, NULL, 16);
}

/* Returns 0, or why the block is not in @state now. */
static inline int set_state(unsigned long block, const char *state)
{
	char path[96];

	snprintf(path, sizeof(path), MEMORY "/memory%lu/state", block);
	return write_text(path, state);
}

static inline int is_online(unsigned long block)
{
	char path[96], state[32];

	snprintf(path, sizeof(path), MEMORY "/memory%lu/state", block);
	return !read_line(path, state, sizeof(state)) && !strcmp(state, "online");
}

#endif
