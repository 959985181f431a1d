/* SPDX-License-Identifier: GPL-2.0-only */
/* What our own tests say, in the words of kselftest.h, which is for tests whose number of cases is known. */
#ifndef SELFTESTS_TAP_H
#define SELFTESTS_TAP_H

#include <stdbool.h>
#include <stdio.h>

static unsigned int tap_cases, tap_failures;

/* One case: @ok, or why not. */
static inline void tap(bool ok, const char *name, const char *why)
{
	tap_failures += !ok;
	if (ok)
		printf("ok %u %s\n", ++tap_cases, name);
	else
		printf("not ok %u %s: %s\n", ++tap_cases, name, why);
	fflush(stdout);
}

static inline void tap_skip(const char *name, const char *why)
{
	printf("ok %u %s # SKIP %s\n", ++tap_cases, name, why);
	fflush(stdout);
}

/* The exit status. */
static inline int tap_done(void)
{
	printf("1..%u\n", tap_cases);
	return tap_failures ? 1 : 0;
}

#endif
