// SPDX-License-Identifier: GPL-2.0-only
/*
 * with_swap PROGRAM [ARGUMENT...]: runs a program while there are 64 MiB of swap, and ends as it does.
 *
 * The swap is a loop device on a file of ramfs, whose own pages cannot be swapped out.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <linux/loop.h>
#include "files.h"

#define CONTROL		"/dev/loop-control"
#define DIRECTORY	"/tmp/swap"
#define SKIPPED		4	/* kselftest's exit status */
#define PAGE		4096
#define PAGES		(64 << 20 >> 12)

/* The first page of a swap area of version 1, mm/swapfile.c: what is needed of union swap_header. */
struct header {
	char boot[1024];
	unsigned int version, last_page, bad_pages;
	char unused[PAGE - 1024 - 3 * sizeof(unsigned int) - 10];
	char magic[10];
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	printf("not ok with_swap: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

/* A new file of as many zeros as there is to be swap, but for its header. Returns a descriptor. */
static int make_file(void)
{
	static const char zeros[PAGE];
	struct header header = { .version = 1, .last_page = PAGES - 1 };
	int fd;

	memcpy(header.magic, "SWAPSPACE2", sizeof(header.magic));
	need(!mkdir(DIRECTORY, 0700) && !mount("swap", DIRECTORY, "ramfs", 0, NULL), DIRECTORY);
	fd = open(DIRECTORY "/file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	need(fd >= 0 && write(fd, &header, PAGE) == PAGE, DIRECTORY "/file");
	for (int i = 1; i < PAGES; i++)
		need(write(fd, zeros, PAGE) == PAGE, DIRECTORY "/file");
	return fd;
}

/*
 * Puts the file behind a loop device, whose path it writes to @device. It is gone once nobody has it open any more. Returns
 * a descriptor of it.
 */
static int make_device(int file, char *device, size_t size)
{
	struct loop_info64 info = { .lo_flags = LO_FLAGS_AUTOCLEAR };
	int control = open(CONTROL, O_RDWR | O_CLOEXEC), number, fd;

	need(control >= 0, CONTROL);
	number = ioctl(control, LOOP_CTL_GET_FREE);
	need(number >= 0, "LOOP_CTL_GET_FREE");
	close(control);
	snprintf(device, size, "/dev/loop%d", number);
	fd = open(device, O_RDWR | O_CLOEXEC);
	need(fd >= 0 && !ioctl(fd, LOOP_SET_FD, file) && !ioctl(fd, LOOP_SET_STATUS64, &info), device);
	return fd;
}

/* Runs the program, and returns the status that waitpid() has of it. */
static int run(char **program)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		execv(program[0], program);
		need(0, program[0]);
	}
	need(child > 0 && waitpid(child, &status, 0) == child, program[0]);
	return status;
}

int main(int argc, char **argv)
{
	char device[32];
	int file, loop, status;

	errno = EINVAL;
	need(argc > 1, "PROGRAM is missing");
	if (access(CONTROL, F_OK) || access("/proc/swaps", F_OK)) {
		printf("ok with_swap # SKIP the kernel has no loop devices or no swap\n");
		return SKIPPED;
	}
	file = make_file();
	loop = make_device(file, device, sizeof(device));
	need(!umount2(DIRECTORY, MNT_DETACH) && !rmdir(DIRECTORY), DIRECTORY);
	need(!swapon(device, 0), device);
	close(loop);
	close(file);
	fflush(stdout);
	status = run(argv + 1);
	need(!swapoff(device), device);
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
