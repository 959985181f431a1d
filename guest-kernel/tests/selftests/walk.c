// SPDX-License-Identifier: GPL-2.0-only
/*
 * Makes the kernel walk over all struct pages in every way that user space can ask for, twice: a struct page that is not
 * set up must not be looked at, whatever is asked for. What the kernel has to say of that is in its log; here, a file
 * that cannot be read to its end is a failure, and so are kpageflags that call a page of RAM that is in use none.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "files.h"
#include "tap.h"

#define KPF_NOPAGE	20
#define PAGE		4096UL

static const char * const read_whole[] = {
	"/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/pagetypeinfo", "/proc/buddyinfo", "/proc/zoneinfo",
	"/proc/vmallocinfo", "/sys/kernel/debug/page_owner", "/sys/kernel/mm/page_idle/bitmap",
};

static const struct { const char *path, *text; } write_once[] = {
	{ "/proc/sys/vm/compact_memory", "1" },
	{ "/sys/kernel/debug/split_huge_pages", "1" },
	{ "/sys/kernel/debug/kmemleak", "scan" },
	{ "/proc/sysrq-trigger", "m" },
};

/* Bytes of the file, or minus an errno. */
static long long read_all(const char *path)
{
	static char buffer[1 << 20];
	long long total = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return -errno;
	while ((got = read(fd, buffer, sizeof(buffer))) > 0)
		total += got;
	if (got < 0)
		total = -errno;
	close(fd);
	return total;
}

static void walk_by_reading(const char *path)
{
	long long total = read_all(path);
	char why[64];

	/* page_owner is there, and empty, on a kernel that was not told to keep owners: EINVAL. */
	if (total == -ENOENT || total == -EINVAL) {
		tap_skip(path, "not in this kernel");
		return;
	}
	/* The bitmap ends with an error at the last page frame. */
	if (total == -ENXIO && strstr(path, "page_idle"))
		total = 1;
	snprintf(why, sizeof(why), "%lld bytes: %s", total, total < 0 ? strerror(-total) : "nothing in it");
	tap(total > 0, path, why);
}

static void walk_by_writing(const char *path, const char *text)
{
	int error = write_text(path, text);

	/* kmemleak that is off says EPERM. */
	if (error == ENOENT || error == EPERM || error == EBUSY)
		tap_skip(path, "not in this kernel");
	else
		tap(!error, path, strerror(error));
}

/* The page frame behind @page, 0 if it cannot be known. */
static uint64_t frame_of(void *page)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (fd < 0 || pread(fd, &entry, sizeof(entry), (uintptr_t)page / PAGE * sizeof(entry)) != sizeof(entry))
		entry = 0;
	if (fd >= 0)
		close(fd);
	return entry >> 63 ? entry & ((1ULL << 55) - 1) : 0;
}

/* Pages that are ours, and therefore set up: kpageflags has to know each of them. */
static void own_pages_have_flags(void)
{
	const unsigned int count = 4096;
	char *memory = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int fd = open("/proc/kpageflags", O_RDONLY);
	unsigned int seen = 0, unknown = 0;
	char why[64];

	for (unsigned int i = 0; fd >= 0 && memory != MAP_FAILED && i < count; i++) {
		uint64_t flags, frame = frame_of(memory + i * PAGE);

		if (!frame || pread(fd, &flags, sizeof(flags), frame * sizeof(flags)) != sizeof(flags))
			continue;
		seen++;
		unknown += flags >> KPF_NOPAGE & 1;
	}
	snprintf(why, sizeof(why), "%u of %u pages have flags, %u are none", seen, count, unknown);
	tap(seen == count && !unknown, "kpageflags of own pages", why);
	if (fd >= 0)
		close(fd);
	munmap(memory, count * PAGE);
}

int main(void)
{
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < sizeof(read_whole) / sizeof(read_whole[0]); i++)
			walk_by_reading(read_whole[i]);
		for (size_t i = 0; i < sizeof(write_once) / sizeof(write_once[0]); i++)
			walk_by_writing(write_once[i].path, write_once[i].text);
		own_pages_have_flags();
	}
	return tap_done();
}
