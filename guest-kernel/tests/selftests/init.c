// SPDX-License-Identifier: GPL-2.0-only
/*
 * /init of a VM that runs the kernel's mm selftests, and ours, as /selftests/list says.
 *
 * Each test gives one line on the console, "FLATBOOT " and a JSON object:
 *
 *   check         "selftest", or "boot" for what the kernel said before, or "mode" for what mode.h makes of memmap_init=,
 *                 or "memmap_verify", or at the end "done"
 *   ok            whether it passed or was skipped, and the kernel had nothing to complain about
 *   name          of the test
 *   result        "pass", "fail", "skip", "timeout" (and killed), or "signal"
 *   status        exit status, or number of the signal
 *   ms            milliseconds that it took
 *   passed, failed, skipped   cases, for a test that counts them
 *   deferred_kib  /proc/meminfo's MemDeferred when it began: memory not yet set up; null if there is no such line
 *   failures      the first lines that say "not ok" and why, or the last of what it said if it has none and did not pass
 *   kernel        the first complaint in the kernel log, a warning, a BUG or a report of a checker, and some lines after it
 *
 * A test may write lines of its own like that, "measured", with what it has measured: migrate_speed.c.
 *
 * Before it come more lines of the kernel log, "KERNEL " and the line, if there was a complaint.
 *
 * selftests=NAME,... on the kernel command line runs only these; those of 0 seconds run only then, for as long as
 * seconds=N says. The VM powers off at the end.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include "files.h"
#include "mode.h"

#define DIRECTORY	"/selftests"
#define OUTPUT		"/tmp/.output"
#define SKIPPED		4	/* kselftest's exit status */
#define GREEN		"\033[32m"	/* how khugepaged says that a case passed */
#define RED		"\033[31m"
#define SYSLOG_CONSOLE_LEVEL	8	/* syslog(2) has no names for its actions */
#define CONSOLE_LEVEL	2	/* alerts and emergencies; an oops raises it by itself */
#define MAX_LINES	8
#define MAX_KERNEL_LINES 100	/* after a complaint */
#define MAX_ARGS	12
#define SPARE_SECONDS	180	/* to begin and to end a test that runs as long as it is told */

struct lines {
	unsigned int count;
	char text[MAX_LINES][160];
};

struct test {
	char line[256];
	char *name;
	unsigned int seconds;
	unsigned int hugepages;
	char *args[MAX_ARGS + 1];
};

struct outcome {
	const char *result;
	int status;
	long ms;
	unsigned int passed, failed, skipped;
	bool colored, says_skip;
	struct lines failures, last, kernel;
};

/* What a line of the kernel log has in it if it is a complaint. */
static const char * const complaints[] = {
	"WARNING:", "BUG:", "BUG ", "Oops", "Bad page", "INFO: task", "INFO: possible", "rcu: INFO", "inconsistent lock state",
	"suspicious RCU", "new suspected memory leaks",
};

static int kmsg = -1;

static void add_line(struct lines *lines, const char *text)
{
	if (lines->count < MAX_LINES)
		snprintf(lines->text[lines->count++], sizeof(lines->text[0]), "%.159s", text);
}

/* The last MAX_LINES lines: the oldest goes. */
static void add_last(struct lines *lines, const char *text)
{
	if (lines->count == MAX_LINES) {
		memmove(lines->text, lines->text[1], sizeof(lines->text) - sizeof(lines->text[0]));
		lines->count--;
	}
	add_line(lines, text);
}

static void put_string(const char *s)
{
	putchar('"');
	for (; *s; s++) {
		unsigned char c = *s;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void put_lines(const char *name, const struct lines *lines)
{
	printf(",\"%s\":[", name);
	for (unsigned int i = 0; i < lines->count; i++) {
		if (i)
			putchar(',');
		put_string(lines->text[i]);
	}
	putchar(']');
}

static void begin_report(const char *check, bool ok)
{
	printf("FLATBOOT {\"check\":\"%s\",\"ok\":%s", check, ok ? "true" : "false");
}

static void end_report(void)
{
	printf("}\n");
	fflush(stdout);
}

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Not DEBUG for BUG. */
static bool complains(const char *text)
{
	for (size_t i = 0; i < sizeof(complaints) / sizeof(complaints[0]); i++) {
		const char *at = strstr(text, complaints[i]);

		if (at && (at == text || !isalpha((unsigned char)at[-1])))
			return true;
	}
	return false;
}

/* What the kernel has complained about since the last time. */
static void read_kernel_log(struct lines *found)
{
	bool cut = false;	/* the line before said that a warning follows: what it is about comes first */
	unsigned int more = 0;	/* lines to take all the same, which say more of the complaint before */
	char record[8192];
	ssize_t len;

	while ((len = read(kmsg, record, sizeof(record) - 1)) > 0 || (len < 0 && errno == EPIPE)) {
		char *text;

		if (len < 0)
			continue;	/* records were overwritten: go on with the oldest that is left */
		record[len] = '\0';
		text = strchr(record, ';');
		if (!text)
			continue;
		text[strcspn(text, "\n")] = '\0';
		if (cut || complains(text + 1))
			more = MAX_KERNEL_LINES;
		if (more) {
			printf("KERNEL %s\n", text + 1);
			add_line(found, text + 1);
			more--;
		}
		cut = strstr(text, "[ cut here ]");
	}
}

/* "NAME SECONDS HUGEPAGES PROGRAM ARGUMENTS..." */
static bool parse_test(struct test *test)
{
	unsigned int n = 0;
	char *word, *rest, *save;

	test->name = strtok_r(test->line, " \t\n", &save);
	word = strtok_r(NULL, " \t\n", &save);
	test->seconds = word ? strtoul(word, &rest, 10) : 0;
	if (!word || rest == word || *rest)
		return false;
	word = strtok_r(NULL, " \t\n", &save);
	if (!word)
		return false;
	test->hugepages = strtoul(word, &rest, 10);
	if (*rest)
		return false;
	while ((word = strtok_r(NULL, " \t\n", &save))) {
		if (n == MAX_ARGS)
			return false;
		test->args[n++] = word;
	}
	test->args[n] = NULL;
	return n > 0;
}

/* Whether to run the test: also sets the time for one that runs as long as it is told. */
static bool asked_for(struct test *test)
{
	char names[1024], seconds[16], *word, *save;
	bool named = false;

	if (!parameter("selftests", names, sizeof(names)))
		return test->seconds;
	for (word = strtok_r(names, ",", &save); word; word = strtok_r(NULL, ",", &save))
		named |= !strcmp(word, test->name);
	if (!test->seconds && parameter("seconds", seconds, sizeof(seconds)))
		test->seconds = strtoul(seconds, NULL, 10) + SPARE_SECONDS;
	return named && test->seconds;
}

static void run_child(const struct test *test)
{
	char program[256];
	int out = open(OUTPUT, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int null = open("/dev/null", O_RDONLY);

	setsid();
	dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	if (chdir(DIRECTORY))
		_exit(126);
	snprintf(program, sizeof(program), DIRECTORY "/%s", test->args[0]);
	execv(program, test->args);
	dprintf(2, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

/* Waits for @child, and for orphans, which are ours as PID 1. Returns false when time is up. */
static bool wait_child(pid_t child, unsigned int seconds, int *status)
{
	long end = milliseconds() + seconds * 1000L;

	for (;;) {
		int st;
		pid_t pid = waitpid(-1, &st, WNOHANG);

		if (pid == child) {
			*status = st;
			return true;
		}
		if (pid > 0)
			continue;
		if (milliseconds() > end)
			return false;
		usleep(20000);
	}
}

static void count_line(struct outcome *o, const char *line, const char *before)
{
	const char *text = line + strspn(line, "# ");

	if (!strncmp(text, "not ok", 6)) {
		o->failed++;
		/* Why is a comment on the line before, if anywhere. */
		if (*before == '#')
			add_line(&o->failures, before);
		add_line(&o->failures, line);
	} else if (!strncmp(text, "ok ", 3)) {
		if (strstr(text, "# SKIP"))
			o->skipped++;
		else
			o->passed++;
	} else if (strstr(line, GREEN)) {
		o->colored = true;
		o->passed++;
	} else if (strstr(line, RED)) {
		o->colored = true;
		o->failed++;
		add_line(&o->failures, line);
	}
	o->says_skip |= strcasestr(line, "skip") != NULL;
	add_last(&o->last, line);
}

static void count_cases(struct outcome *o)
{
	FILE *f = fopen(OUTPUT, "r");
	char *line = NULL, before[160] = "";
	size_t size = 0;

	while (f && getline(&line, &size, f) >= 0) {
		char *overwritten;

		line[strcspn(line, "\n")] = '\0';
		/* What counts of a line that is written over, as progress is, is the last. */
		overwritten = strrchr(line, '\r');
		if (overwritten && overwritten[1])
			memmove(line, overwritten + 1, strlen(overwritten));
		line[strcspn(line, "\r")] = '\0';
		count_line(o, line, before);
		snprintf(before, sizeof(before), "%.159s", line);
	}
	free(line);
	if (f)
		fclose(f);
}

/* Not every 4 is one: khugepaged, which has colors, counts failures by it, hugepage-shm means one of them. */
static bool is_skip(const struct outcome *o)
{
	return o->status == SKIPPED && o->says_skip && !o->colored && !o->failed;
}

static void run_test(const struct test *test, struct outcome *o)
{
	long begin = milliseconds();
	pid_t child = fork();
	int status = 0;

	if (child < 0) {
		o->result = "fail";
		add_line(&o->failures, "fork failed");
		return;
	}
	if (!child)
		run_child(test);
	if (!wait_child(child, test->seconds, &status)) {
		o->result = "timeout";
	} else if (WIFSIGNALED(status)) {
		o->result = "signal";
		o->status = WTERMSIG(status);
	} else {
		o->status = WEXITSTATUS(status);
	}
	/* Whatever it left running, and all that it was if time was up. */
	kill(-child, SIGKILL);
	while (waitpid(-1, &status, WNOHANG) > 0)
		;
	o->ms = milliseconds() - begin;
	count_cases(o);
	if (!o->result)
		o->result = !o->status ? "pass" : is_skip(o) ? "skip" : "fail";
}

static bool report_test(const struct test *test)
{
	struct outcome o = {};
	long deferred = meminfo("MemDeferred");
	bool passed, ok;

	run_test(test, &o);
	read_kernel_log(&o.kernel);
	passed = !strcmp(o.result, "pass") || !strcmp(o.result, "skip");
	ok = passed && !o.kernel.count;

	begin_report("selftest", ok);
	printf(",\"name\":\"%s\",\"result\":\"%s\",\"status\":%d,\"ms\":%ld,\"passed\":%u,\"failed\":%u,\"skipped\":%u",
	       test->name, o.result, o.status, o.ms, o.passed, o.failed, o.skipped);
	if (deferred < 0)
		printf(",\"deferred_kib\":null");
	else
		printf(",\"deferred_kib\":%ld", deferred);
	put_lines("failures", !strcmp(o.result, "pass") || o.failures.count ? &o.failures : &o.last);
	put_lines("kernel", &o.kernel);
	end_report();
	return ok;
}

static void prepare(const struct test *test)
{
	char pages[16];

	/* A kernel that will not have it makes the test say so. */
	snprintf(pages, sizeof(pages), "%u", test->hugepages);
	write_text("/proc/sys/vm/nr_hugepages", "0");
	write_text("/proc/sys/vm/drop_caches", "3");
	write_text("/proc/sys/vm/nr_hugepages", pages);
}

static bool bad_list(const char *line)
{
	begin_report("selftest", false);
	printf(",\"name\":");
	put_string(line);
	printf(",\"result\":\"fail\",\"error\":\"%s/list: not NAME SECONDS HUGEPAGES PROGRAM...\"", DIRECTORY);
	end_report();
	return false;
}

static bool run_all(void)
{
	FILE *list = fopen(DIRECTORY "/list", "r");
	unsigned int count = 0;
	struct test test;
	bool ok = true;

	while (list && fgets(test.line, sizeof(test.line), list)) {
		char whole[sizeof(test.line)];

		memcpy(whole, test.line, sizeof(whole));
		if (strchr("#\n", test.line[0]))
			continue;
		if (!parse_test(&test)) {
			ok = bad_list(whole);
			continue;
		}
		if (!asked_for(&test))
			continue;
		prepare(&test);
		ok &= report_test(&test);
		count++;
	}
	/* None is as good as a failure: a name on the command line was mistyped. */
	return ok && count;
}

/* Whether what follows tests the mode that it is said to test. */
static bool report_mode(void)
{
	struct mode mode = {};
	bool ok;

	judge_mode(&mode);
	ok = strcmp(mode.result, "fail");
	begin_report("mode", ok);
	printf(",\"result\":\"%s\",\"asked\":\"%s\",\"mode\":\"%s\",\"late_kib\":%ld,\"why\":",
	       mode.result, mode.asked, mode.effect, mode.late_kib);
	put_string(mode.why);
	end_report();
	return ok;
}

static bool report_boot(void)
{
	struct lines complaints_found = {};

	read_kernel_log(&complaints_found);
	begin_report("boot", !complaints_found.count);
	put_lines("kernel", &complaints_found);
	end_report();
	return !complaints_found.count;
}

/* The series' own check of all struct pages, if the kernel has it. */
static bool report_verify(void)
{
	FILE *f = fopen("/sys/kernel/debug/memmap_verify", "r");
	struct lines said = {};
	char line[256];
	bool ok;

	if (!f)
		return true;
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		add_line(&said, line);
	}
	fclose(f);
	ok = said.count && !strncmp(said.text[0], "ok", 2);
	begin_report("memmap_verify", ok);
	put_lines("lines", &said);
	end_report();
	return ok;
}

/* hmm-tests' devices: nothing else makes their nodes. */
static void make_hmm_nodes(void)
{
	FILE *f = fopen("/proc/devices", "r");
	char line[128], name[64];
	unsigned int major;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%u %63s", &major, name) != 2 || strcmp(name, "HMM_DMIRROR"))
			continue;
		for (unsigned int i = 0; i < 4; i++) {
			char path[32];

			snprintf(path, sizeof(path), "/dev/hmm_dmirror%u", i);
			mknod(path, S_IFCHR | 0600, makedev(major, i));
		}
	}
	if (f)
		fclose(f);
}

static void mount_all(void)
{
	static const struct { const char *type, *where; } mounts[] = {
		{ "devtmpfs", "/dev" }, { "proc", "/proc" }, { "sysfs", "/sys" },
		{ "debugfs", "/sys/kernel/debug" }, { "tmpfs", "/tmp" }, { "tmpfs", "/dev/shm" },
	};

	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		mkdir(mounts[i].where, 0755);
		/* A kernel may lack one, or have mounted it; a test that misses it says so. */
		mount(mounts[i].type, mounts[i].where, mounts[i].type, 0, NULL);
	}
}

int main(void)
{
	bool ok;

	if (getpid() != 1) {
		fprintf(stderr, "init: this is the init of a guest; it only runs as PID 1\n");
		return 2;
	}
	mount_all();
	make_hmm_nodes();
	kmsg = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
	/* Some tests give the kernel much to say, and a serial console is slow. What ends the VM is still shown. */
	klogctl(SYSLOG_CONSOLE_LEVEL, NULL, CONSOLE_LEVEL);
	ok = report_boot();
	ok &= report_mode();
	ok &= run_all();
	ok &= report_verify();
	begin_report("done", ok);
	end_report();
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
