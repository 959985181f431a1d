// SPDX-License-Identifier: GPL-2.0-only
/*
 * The hash table of inodes, of which more is used while more inodes are put in: files of tmpfs are found by their handles,
 * and by nothing else, while others are made and removed. Each that is there is found, none that is not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include "files.h"
#include "tap.h"

#define PLACE	"/tmp/inodes"
#define FILES	60000U
#define LOOKERS	2
#define SAID	"Inode-cache hash table entries: "

struct handle {
	struct file_handle head;
	unsigned char rest[16];	/* tmpfs has 12 bytes */
	ino_t inode;
};

static struct handle handles[FILES];
static atomic_uint made;
static atomic_bool over;
static int place;

static void name(char *text, const char *kind, unsigned int i)
{
	sprintf(text, PLACE "/%s-%u", kind, i);
}

/* A new file, and its handle: the kernel puts its inode in the table when somebody asks for that. */
static bool make(const char *path, struct handle *handle)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600), mount;
	struct stat stat;
	bool good;

	if (fd < 0)
		return false;
	handle->head.handle_bytes = sizeof(handle->rest);
	good = !fstat(fd, &stat) && !name_to_handle_at(fd, "", &handle->head, &mount, AT_EMPTY_PATH);
	handle->inode = stat.st_ino;
	close(fd);
	return good;
}

/* Is there a file with this handle, and is it the one? */
static bool is_found(struct handle *handle)
{
	int fd = open_by_handle_at(place, &handle->head, O_RDONLY);
	struct stat stat;
	bool good;

	if (fd < 0)
		return false;
	good = !fstat(fd, &stat) && stat.st_ino == handle->inode;
	close(fd);
	return good;
}

/* Looks for files that are there, and returns how many it has not found. */
static void *look(void *looked)
{
	unsigned long n = 0, missing = 0;

	while (!over) {
		unsigned int there = made;

		/* A prime stride comes by all of them. */
		for (unsigned int step = 0; step < 64 && step < there; step++)
			missing += !is_found(&handles[(n++ * 7919 + step) % there]);
	}
	*(unsigned long *)looked = n;
	return (void *)missing;
}

/* Makes files and removes them, and returns how many were not found, or were after that. */
static void *come_and_go(void *gone)
{
	unsigned long n = 0, wrong = 0;
	struct handle handle;
	char path[64];

	for (; !over; n++) {
		name(path, "passing", n);
		if (!make(path, &handle) || !is_found(&handle))
			wrong++;
		unlink(path);
		wrong += is_found(&handle);
	}
	*(unsigned long *)gone = n;
	return (void *)wrong;
}

/* The number of buckets that the table has, which the kernel says when it starts. */
static unsigned long buckets(void)
{
	static char log[1 << 20];
	char *at;

	if (klogctl(3, log, sizeof(log) - 1) < 0)
		return 0;
	at = strstr(log, SAID);
	return at ? strtoul(at + strlen(SAID), NULL, 10) : 0;
}

static void fill_the_table(void)
{
	unsigned long looked[LOOKERS], gone, lost = 0;
	pthread_t lookers[LOOKERS], passing;
	char path[64], why[96];
	void *n;

	for (int i = 0; i < LOOKERS; i++)
		pthread_create(&lookers[i], NULL, look, &looked[i]);
	pthread_create(&passing, NULL, come_and_go, &gone);
	for (unsigned int i = 0; i < FILES; i++) {
		name(path, "file", i);
		if (!make(path, &handles[i]))
			break;
		made = i + 1;
	}
	over = true;
	for (int i = 0; i < LOOKERS; i++) {
		pthread_join(lookers[i], &n);
		lost += (unsigned long)n;
		looked[0] += i ? looked[i] : 0;
	}
	pthread_join(passing, &n);
	snprintf(why, sizeof(why), "%u of %u files", made, FILES);
	tap(made == FILES, "files are made", why);
	snprintf(why, sizeof(why), "%lu of %lu are not found", lost, looked[0]);
	tap(!lost && looked[0], "files are found while others are made", why);
	snprintf(why, sizeof(why), "%lu of %lu", (unsigned long)n, gone);
	tap(!n && gone, "files come and go", why);
}

static void empty_the_table(void)
{
	unsigned long lost = 0, ghosts = 0;
	char path[64], why[64];

	for (unsigned int i = 0; i < made; i += 2) {
		name(path, "file", i);
		unlink(path);
	}
	for (unsigned int i = 0; i < made; i++) {
		bool found = is_found(&handles[i]);

		lost += i % 2 && !found;
		ghosts += !(i % 2) && found;
	}
	snprintf(why, sizeof(why), "%lu lost, %lu ghosts", lost, ghosts);
	tap(!lost && !ghosts, "half of the files are removed", why);
}

int main(void)
{
	unsigned long size = buckets();
	char why[64];

	/* Else the table is used up at once, and does not grow. */
	snprintf(why, sizeof(why), "it has %lu buckets", size);
	tap(size > FILES, "the table is larger than what is used of it", why);
	mkdir(PLACE, 0700);
	if (mount("none", PLACE, "tmpfs", 0, "size=100%,nr_inodes=0")) {
		tap(false, PLACE, strerror(errno));
		return tap_done();
	}
	place = open(PLACE, O_RDONLY | O_DIRECTORY);
	fill_the_table();
	empty_the_table();
	close(place);
	umount(PLACE);
	return tap_done();
}
