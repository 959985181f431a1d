// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes memory offline at the ends of zones, and leaves it offline, while memory between them may still have to be set up.
 * The zones must end where they did, or where the block did that went; then all other memory is used, walked over
 * and saved.
 *
 * Arguments: addresses of blocks that the kernel command line hid, to add and to take offline again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "tap.h"
#include "zones.h"

#define PAGE		4096UL
#define TRIES		5
#define SPARE_KIB	(160L << 10)	/* memory that is not asked for */
#define MOST_LEFT_KIB	(3L * 128 << 10)	/* deferred when that much is spare */
#define MAX_BLOCKS	8

static unsigned long taken[MAX_BLOCKS];
static unsigned int taken_count;

/* What was freed into a block since it came may have to be moved. */
static int take_offline(unsigned long block)
{
	int error = 0;

	for (int i = 0; i < TRIES; i++) {
		error = set_state(block, "offline");
		if (!error) {
			taken[taken_count++] = block;
			return 0;
		}
		if (error != EBUSY && error != EAGAIN)
			break;
		usleep(200000);
	}
	return error;
}

static void expect_zone(const char *what, const char *name, struct zone expected)
{
	struct zone zone = read_zone(name);
	char why[160];

	snprintf(why, sizeof(why), "zone %s is from %#lx, %lu pages, %lu present, not from %#lx, %lu, %lu", name, zone.start,
		 zone.spanned, zone.present, expected.start, expected.spanned, expected.present);
	tap(zone.start == expected.start && zone.spanned == expected.spanned && zone.present == expected.present, what, why);
}

/*
 * What @zone is once @block went, which was not in it when it was read. At boot a zone may begin with a hole; Linux moves
 * its start to the next block when the first one goes.
 */
static struct zone without(struct zone zone, unsigned long block, unsigned long pages)
{
	unsigned long end = zone.start + zone.spanned;

	if (block * pages != zone.start)
		return zone;
	do
		zone.start += pages;
	while (zone.start < end && !is_online(zone.start / pages));
	zone.spanned = end - zone.start;
	return zone;
}

/* Adds a block next to ZONE_NORMAL or in it, and takes it offline again: the zone must end where it did. */
static void add_and_take(uint64_t address, unsigned long bytes)
{
	struct zone before = read_zone("Normal"), with;
	unsigned long block = address / bytes;
	char text[32], name[64], why[128];
	int error;

	snprintf(text, sizeof(text), "%#llx", (unsigned long long)address);
	error = write_text(MEMORY "/probe", text);
	snprintf(name, sizeof(name), "block at %s added", text);
	tap(!error, name, strerror(error));
	if (error)
		return;
	error = set_state(block, "online_kernel");
	with = read_zone("Normal");
	snprintf(name, sizeof(name), "block at %s online", text);
	snprintf(why, sizeof(why), "%s; %lu pages present, there were %lu", strerror(error), with.present, before.present);
	tap(!error && with.present == before.present + bytes / PAGE, name, why);
	error = take_offline(block);
	snprintf(name, sizeof(name), "block at %s offline", text);
	tap(!error, name, strerror(error));
	snprintf(name, sizeof(name), "zone is as before the block at %s", text);
	if (!error)
		expect_zone(name, "Normal", without(before, block, bytes / PAGE));
}

/* The last block of the low memory that can be had from the allocator by its address. */
static void take_top_of_dma32(unsigned long bytes)
{
	struct zone zone = read_zone("DMA32");
	unsigned long pages = bytes / PAGE, end = zone.start + zone.spanned;
	int error;

	if (!zone.spanned || end % pages) {
		tap_skip("top block of DMA32", "the zone does not end with a block");
		return;
	}
	error = take_offline(end / pages - 1);
	if (error) {
		tap_skip("top block of DMA32", strerror(error));
		return;
	}
	zone.spanned -= pages;
	zone.present -= pages;
	expect_zone("DMA32 without its top block", "DMA32", zone);
}

/* Takes all memory but for some, and finds in it what was written. */
static void use_all(void)
{
	size_t bytes = (size_t)(meminfo("MemAvailable") - SPARE_KIB) << 10, wrong = 0;
	long deferred = meminfo("MemDeferred");
	uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char why[128];

	if (memory == MAP_FAILED) {
		tap(false, "all memory", strerror(errno));
		return;
	}
	/* An emulated host serves huge pages sooner. Not there: then small ones do. */
	madvise(memory, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bytes / sizeof(*memory); i += PAGE / sizeof(*memory))
		memory[i] = i ^ 0x5a5a5a5a5a5a5a5a;
	for (size_t i = 0; i < bytes / sizeof(*memory); i += PAGE / sizeof(*memory))
		wrong += memory[i] != (i ^ 0x5a5a5a5a5a5a5a5a);
	snprintf(why, sizeof(why), "%zu of %zu pages are not what was written", wrong, bytes / PAGE);
	tap(!wrong, "all memory", why);
	snprintf(why, sizeof(why), "%ld KiB are deferred, there were %ld", meminfo("MemDeferred"), deferred);
	tap(meminfo("MemDeferred") <= MOST_LEFT_KIB, "all memory was set up", why);
	munmap(memory, bytes);
}

/* The series' own check, if the kernel has it. */
static void verify(const char *name)
{
	FILE *f = fopen("/sys/kernel/debug/memmap_verify", "r");
	char line[256], said[256] = "nothing";

	if (!f) {
		tap_skip(name, "no memmap_verify in this kernel");
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(said, "bad", 3))
			snprintf(said, sizeof(said), "%s", line);
	}
	fclose(f);
	tap(!strncmp(said, "ok", 2), name, said);
}

/* Another of these tests. */
static void run(const char *program)
{
	char path[64], why[64];
	pid_t child = fork();
	int status = -1;

	if (!child) {
		snprintf(path, sizeof(path), "./%s", program);
		execl(path, program, (char *)NULL);
		_exit(127);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	snprintf(why, sizeof(why), "status %#x", status);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 4)
		tap_skip(program, "not in this kernel");
	else
		tap(!status, program, why);
}

static void bring_back(void)
{
	char name[64];

	while (taken_count) {
		unsigned long block = taken[--taken_count];
		int error = set_state(block, "online");

		snprintf(name, sizeof(name), "block %lu online again", block);
		tap(!error, name, strerror(error));
	}
}

int main(int argc, char **argv)
{
	unsigned long bytes = block_bytes();

	if (!bytes || access(MEMORY "/probe", F_OK)) {
		tap_skip("unplug", "no memory hot-plug by address in this kernel");
		return 4;
	}
	for (int i = 1; i < argc && i < MAX_BLOCKS; i++)
		add_and_take(strtoull(argv[i], NULL, 0), bytes);
	take_top_of_dma32(bytes);
	verify("memory with blocks offline");
	run("walk");
	use_all();
	run("walk");
	verify("all memory with blocks offline");
	run("image");
	bring_back();
	return tap_done();
}
