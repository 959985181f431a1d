// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tells the kernel of memory errors in free pages all over RAM, as hardware would, by their page frame numbers. Each has
 * to be taken out of use, whether or not its struct page has been set up before. Then they are taken back.
 */
#include <stdlib.h>
#include "files.h"
#include "tap.h"

#define CORRUPT		"/sys/kernel/debug/hwpoison/corrupt-pfn"
#define UNPOISON	"/sys/kernel/debug/hwpoison/unpoison-pfn"
#define PAGES		16

struct ram {
	unsigned long first, last;	/* page frames */
};

/* The largest piece of RAM, where free memory is. */
static struct ram largest_ram(void)
{
	FILE *f = fopen("/proc/iomem", "r");
	struct ram best = {};
	char line[128];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long long start, end;

		if (sscanf(line, "%llx-%llx : System RAM", &start, &end) == 2 && strstr(line, "System RAM") &&
		    (end - start) >> 12 > best.last - best.first)
			best = (struct ram){ (start + 4095) >> 12, (end + 1) >> 12 };
	}
	if (f)
		fclose(f);
	return best;
}

static int write_number(const char *path, unsigned long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu\n", number);
	return write_text(path, text);
}

int main(void)
{
	struct ram ram = largest_ram();
	unsigned long poisoned[PAGES];
	unsigned int count = 0, back = 0;
	char name[64];
	long before, corrupted;
	int error;

	if (access(CORRUPT, F_OK)) {
		tap_skip("hwpoison", "no HWPOISON_INJECT in this kernel");
		return 4;
	}
	before = meminfo("HardwareCorrupted");
	for (unsigned int i = 1; i <= PAGES; i++) {
		/* All over the upper half, and at odd numbers: within larger free pages. */
		unsigned long frame = (ram.first + (ram.last - ram.first) * (PAGES + i) / (2 * PAGES + 1)) | 1;

		error = write_number(CORRUPT, frame);
		snprintf(name, sizeof(name), "error in page frame %#lx", frame);
		/* In use, by something that cannot be killed. */
		if (error == EBUSY || error == EIO) {
			tap_skip(name, "the page is in use");
			continue;
		}
		tap(!error, name, strerror(error));
		if (!error)
			poisoned[count++] = frame;
	}
	corrupted = meminfo("HardwareCorrupted");
	snprintf(name, sizeof(name), "%ld KiB for %u pages", corrupted - before, count);
	/* Pages in use are counted too. */
	tap(count && corrupted - before >= 4L * count, "HardwareCorrupted counts them", name);
	for (unsigned int i = 0; i < count; i++) {
		error = write_number(UNPOISON, poisoned[i]);
		snprintf(name, sizeof(name), "page frame %#lx back", poisoned[i]);
		/* It had been in use, and whoever had it still refers to it. */
		if (error == EBUSY) {
			tap_skip(name, "busy");
			continue;
		}
		tap(!error, name, strerror(error));
		back += !error;
	}
	snprintf(name, sizeof(name), "%ld KiB less for %u pages", corrupted - meminfo("HardwareCorrupted"), back);
	tap(back && corrupted - meminfo("HardwareCorrupted") == 4L * back, "HardwareCorrupted counts them no more", name);
	return tap_done();
}
