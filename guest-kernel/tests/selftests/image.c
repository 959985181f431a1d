// SPDX-License-Identifier: GPL-2.0-only
/*
 * Has the kernel make an image of all memory in memory, as for hibernation, and reads it: neither a swap device nor a
 * restart is needed. All struct pages of RAM are looked at, and each page in use has to be in the image.
 */
#include <stdlib.h>
#include <sys/ioctl.h>
#include <linux/suspend_ioctls.h>
#include "files.h"
#include "tap.h"

#define SNAPSHOT	"/dev/snapshot"
#define PAGE		4096

/* Bytes that can be read, or minus an errno. */
static long long read_image(int fd)
{
	static char page[PAGE];
	long long total = 0;
	ssize_t got;

	while ((got = read(fd, page, sizeof(page))) > 0)
		total += got;
	return got < 0 ? -errno : total;
}

static bool call(int fd, unsigned long request, void *arg, const char *name)
{
	bool ok = !ioctl(fd, request, arg);

	tap(ok, name, strerror(errno));
	return ok;
}

static void check_image(int fd)
{
	long long size = 0, total;
	char why[96];

	if (!call(fd, SNAPSHOT_GET_IMAGE_SIZE, &size, "size of the image"))
		return;
	total = read_image(fd);
	snprintf(why, sizeof(why), "%lld bytes were read, %lld were promised", total, size);
	tap(size > 0 && total == size, "the image can be read", why);
}

int main(void)
{
	int fd = open(SNAPSHOT, O_RDONLY), in_suspend = 0;

	if (fd < 0) {
		tap_skip("image", "no hibernation by user space in this kernel");
		return errno == ENOENT || errno == ENODEV || errno == EPERM ? 4 : 1;
	}
	if (call(fd, SNAPSHOT_FREEZE, NULL, "processes frozen")) {
		if (call(fd, SNAPSHOT_CREATE_IMAGE, &in_suspend, "image made")) {
			tap(in_suspend, "the image was made, not resumed from", "in_suspend is 0");
			check_image(fd);
		}
		call(fd, SNAPSHOT_FREE, NULL, "image freed");
		call(fd, SNAPSHOT_UNFREEZE, NULL, "processes thawed");
	}
	close(fd);
	return tap_done();
}
