// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes memory until the kernel ends who took it, with a quarter of it to be kept free: the reserve must neither be
 * given out nor set up, although what is deferred counts as free and is set up for whoever asks. Who takes it does so by
 * single pages, which need nothing but that.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "mode.h"
#include "tap.h"

#define PAGE		4096UL
#define MIN_FREE	"/proc/sys/vm/min_free_kbytes"
/* Of the reserve, in percent, that may be given to those who cannot wait, and to who is being ended. */
#define GIVEN		25

/* Everything of memory, and as much again: it cannot be had. Does not return. */
static void take(long kib)
{
	size_t size = (size_t)kib * 2048;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, size, MADV_NOHUGEPAGE) || write_text("/proc/self/oom_score_adj", "1000"))
		_exit(1);
	for (size_t at = 0; at < size; at += PAGE)
		memory[at] = 1;
	_exit(0);
}

int main(void)
{
	long total = meminfo("MemTotal"), keep = total / 4, free, lowest = total, deferred = -1;
	struct mode mode = {};
	int status = 0, error;
	char text[128];
	pid_t taker;

	read_mode(&mode);
	snprintf(text, sizeof(text), "%ld", keep);
	error = write_text(MIN_FREE, text);
	tap(!error, "a quarter of memory is to be kept free", strerror(error));

	taker = fork();
	if (!taker)
		take(total);
	while (taker > 0 && !waitpid(taker, &status, WNOHANG)) {
		free = meminfo("MemFree");
		if (free < 0 || free >= lowest)
			continue;
		lowest = free;
		deferred = meminfo("MemDeferred");
	}
	snprintf(text, sizeof(text), "status %#x", status);
	tap(taker > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "who takes more is ended", text);

	snprintf(text, sizeof(text), "%ld KiB were free, %ld of them deferred, %ld are to be kept", lowest, deferred, keep);
	tap(lowest >= keep / 100 * (100 - GIVEN) && lowest < 2 * keep, "the reserve is kept, and no more", text);
	if (strcmp(mode.effect, "ondemand"))
		tap_skip("the reserve is deferred", "memory is not set up on demand");
	else
		tap(deferred > lowest / 2, "the reserve is deferred", text);
	return tap_done();
}
