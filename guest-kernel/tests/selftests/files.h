/* SPDX-License-Identifier: GPL-2.0-only */
/* Files of procfs and sysfs. */
#ifndef SELFTESTS_FILES_H
#define SELFTESTS_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Writes @text to the file. Returns 0 or an errno. */
static inline int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), error = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		error = errno;
	close(fd);
	return error;
}

/* Reads the file's first line, without its end, into @line. Returns 0 or an errno. */
static inline int read_line(const char *path, char *line, int size)
{
	FILE *f = fopen(path, "r");
	int error = 0;

	if (!f)
		return errno;
	if (!fgets(line, size, f))
		error = EIO;
	else
		line[strcspn(line, "\n")] = '\0';
	fclose(f);
	return error;
}

/* The value of a line of /proc/meminfo in KiB, -1 if there is none. */
static inline long meminfo(const char *key)
{
	FILE *f = fopen("/proc/meminfo", "r");
	size_t len = strlen(key);
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, len) && line[len] == ':')
			sscanf(line + len + 1, "%ld", &kib);
	if (f)
		fclose(f);
	return kib;
}

#endif
