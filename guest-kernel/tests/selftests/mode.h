/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether struct pages are set up in the way that the kernel command line asks for, and memory was deferred where it
 * should be: a test of a mode that is not in effect, or that has nothing left to set up, tests nothing.
 */
#ifndef SELFTESTS_MODE_H
#define SELFTESTS_MODE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "files.h"

#define MEMMAP_NODES	"/sys/kernel/debug/memmap_nodes"

struct mode {
	char asked[16];		/* memmap_init= of the command line, or empty */
	char effect[16];	/* what the kernel says, or empty */
	long late_kib;		/* deferred when init began, -1 if the kernel does not say */
	const char *result;	/* "pass", "fail" or "skip" */
	char why[160];
};

/* The value of NAME=VALUE on the kernel command line. Returns false if there is none. */
static inline bool parameter(const char *name, char *value, size_t size)
{
	static char cmdline[4096];
	size_t len = strlen(name);
	char *at = cmdline;

	if (!cmdline[0] && read_line("/proc/cmdline", cmdline, sizeof(cmdline)))
		return false;
	for (; (at = strstr(at, name)); at += len) {
		if ((at > cmdline && at[-1] != ' ') || at[len] != '=')
			continue;
		snprintf(value, size, "%.*s", (int)strcspn(at + len + 1, " \n"), at + len + 1);
		return true;
	}
	return false;
}

/* The number of the column called @name in a line that names them, -1 if there is none. */
static inline int column(const char *titles, const char *name)
{
	char copy[256], *save, *word;
	int number = 0;

	snprintf(copy, sizeof(copy), "%s", titles);
	/* The first word is "#". */
	strtok_r(copy, " \n", &save);
	for (; (word = strtok_r(NULL, " \n", &save)); number++)
		if (!strcmp(word, name))
			return number;
	return -1;
}

/* Fills in what the kernel says, over all nodes. */
static inline void read_mode(struct mode *m)
{
	FILE *f = fopen(MEMMAP_NODES, "r");
	int mode = -1, late = -1;
	char line[256];

	m->late_kib = -1;
	while (f && fgets(line, sizeof(line), f)) {
		char *save, *word;

		if (line[0] == '#') {
			mode = column(line, "mode");
			late = column(line, "late");
			continue;
		}
		word = strtok_r(line, " \n", &save);
		for (int i = 0; word; i++, word = strtok_r(NULL, " \n", &save)) {
			if (i == mode)
				snprintf(m->effect, sizeof(m->effect), "%s", word);
			if (i == late)
				m->late_kib = (m->late_kib < 0 ? 0 : m->late_kib) + strtol(word, NULL, 10) * 4;
		}
	}
	if (f)
		fclose(f);
}

/* Why the kernel chose another mode than it was told, from its log: "MODE becomes parallel: ...". */
static inline bool find_excuse(char *why, size_t size)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	char record[8192];
	bool found = false;
	ssize_t len;

	while (!found && fd >= 0 && (len = read(fd, record, sizeof(record) - 1)) > 0) {
		char *text;

		record[len] = '\0';
		text = strstr(record, " becomes parallel: ");
		if (!text)
			continue;
		text[strcspn(text, "\n")] = '\0';
		snprintf(why, size, "not tested: it%s", text);
		found = true;
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static inline bool fills_late(const char *mode)
{
	return !strcmp(mode, "async") || !strcmp(mode, "ondemand");
}

/* Judges the mode, which to ask for is up to the command line. */
static inline void judge_mode(struct mode *m)
{
	m->result = "fail";
	if (!parameter("memmap_init", m->asked, sizeof(m->asked))) {
		m->result = "skip";
		snprintf(m->why, sizeof(m->why), "no memmap_init= on the kernel command line");
		return;
	}
	read_mode(m);
	if (!m->effect[0])
		snprintf(m->why, sizeof(m->why), MEMMAP_NODES " does not say which mode is in effect");
	else if (strcmp(m->asked, m->effect) && find_excuse(m->why, sizeof(m->why)))
		m->result = "skip";
	else if (strcmp(m->asked, m->effect))
		snprintf(m->why, sizeof(m->why), "%s is in effect, and the kernel did not say why", m->effect);
	else if (m->late_kib < 0)
		snprintf(m->why, sizeof(m->why), MEMMAP_NODES " does not say how much was deferred when init began");
	else if (fills_late(m->effect) != (m->late_kib > 0))
		snprintf(m->why, sizeof(m->why), "%ld KiB were deferred when init began", m->late_kib);
	else
		m->result = "pass";
}

#endif
