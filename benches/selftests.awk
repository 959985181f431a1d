# SPDX-License-Identifier: Apache-2.0
# For selftests.sh: reads consoles, …/MODE/TEST.console, and compares what came of each test in the modes.
# guest-kernel/tests/selftests/init.c writes a report a line, whose fields are in a fixed order.

# The value of a field of the report in $0, of a list all that is between its brackets.
function field(name,	at, rest) {
	at = index($0, "\"" name "\":")
	if (!at) return ""
	rest = substr($0, at + length(name) + 3)
	if (sub(/^"/, "", rest)) { sub(/".*/, "", rest); return rest }
	if (rest !~ /^\[/) { sub(/[,}].*/, "", rest); return rest }
	if (!match(rest, /\](}|,"[a-z]+":\[)/)) RSTART = length(rest)
	return substr(rest, 2, RSTART - 2)
}

function bad(what) {
	printf "BAD   %s\n", what
	failed = 1
}

# If the first mode complains too, it is not the mode that is to blame. Told once a mode: all VMs boot alike. What counts is
# the first line, without its numbers, which differ from boot to boot.
function complaint(mode, place, text,	same) {
	same = text
	sub(/",".*/, "", same)
	gsub(/[0-9a-f]*[0-9][0-9a-f]*/, "#", same)
	if ((mode, place, same) in told) return
	told[mode, place, same] = 1
	# Emulated processors that offer no compact state are warned about, and are none of our business.
	if (n == 1 && text ~ /^"XSAVE consistency problem/) printf "NOTE  %s, %s: the kernel doubts the emulated processor\n", mode, place
	else if (mode != order[1] && (order[1], place, same) in told) printf "NOTE  %s, %s: the kernel complained as in %s\n", mode, place, order[1]
	else if (mode == order[1] && n > 1) printf "NOTE  %s, %s: the kernel said %s\n", mode, place, text
	else bad(mode ", " place ": the kernel said " text)
}

function is_good(test, mode) { return result[test, mode] ~ /^(pass|skip)$/ }

function show(test,	i, mode, line) {
	line = sprintf("%-26s", test)
	for (i = 1; i <= n; i++) {
		mode = order[i]
		line = line sprintf("  %s %s %d", mode, result[test, mode] == "" ? "none" : result[test, mode], passed[test, mode])
		if (deferred[test, mode] + 0 > 0) line = line sprintf(" (%d MiB deferred)", deferred[test, mode] / 1024)
	}
	print line
	for (i = 1; i <= n; i++)
		if (result[test, order[i]] != "pass") printf "      %s: %s\n", order[i], why[test, order[i]]
}

function judge(test,	i) {
	ran += result[test, order[1]] != "skip"
	for (i = 1; i <= n; i++)
		if (!is_good(test, order[i])) bad(test " in " order[i] " has not passed")
		else if (is_good(test, order[1]) &&
			 (result[test, order[i]] != result[test, order[1]] || passed[test, order[i]] < passed[test, order[1]]))
			bad(test " in " order[i] " is not as in " order[1])
}

BEGIN {
	n = split(modes, order, " ")
	# A console may be empty.
	for (i = 1; i < ARGC; i++) running[ARGV[i]] = 1
}

FNR == 1 {
	parts = split(FILENAME, part, "/")
	mode = part[parts - 1]
	test = part[parts]
	sub(/\.console$/, "", test)
	if (!(test in known)) { known[test] = 1; tests[++count] = test }
}

!/FLATBOOT \{"check":/ { next }

{
	sub(/^.*FLATBOOT /, "")
	sub(/\r$/, "")
	check = field("check")
}

check == "mode" && field("ok") != "true" { bad(mode ", " test ": memmap_init=" field("asked") ": " field("why")) }
check == "mode" && field("result") == "skip" && !(mode in skipped) {
	skipped[mode] = 1
	printf "SKIP  %s: %s\n", mode, field("why")
}
field("kernel") != "" { complaint(mode, check == "boot" ? "boot" : test, field("kernel")) }
check == "memmap_verify" && field("ok") != "true" { bad(mode ", " test ": memmap_verify: " field("lines")) }
check == "measured" { printf "%-44s %.2f times as fast by several threads\n", field("name"), field("ratio") }
check == "done" { delete running[FILENAME] }
check == "selftest" {
	result[test, mode] = field("result")
	passed[test, mode] = field("passed") + 0
	why[test, mode] = field("failures")
	deferred[test, mode] = field("deferred_kib")
}

END {
	for (left in running) bad(left ": the VM ended before its time")
	for (i = 1; i <= count; i++) {
		show(tests[i])
		judge(tests[i])
	}
	if (!count) bad("no test has run")
	if (failed || ran) exit failed
	print "SKIP  every test was skipped"
	exit 4
}
