#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One task of the array: its rounds, on the node that Slurm chose. Its file has its last name only when it is whole: a node that
# fails in the middle leaves nothing that counts.
#
# usage: task.sh DIRECTORY ROUNDS MORE COMMAND...     the first MORE tasks have one round more
set -eu
directory=$1 rounds=$2 more=$3
shift 3
[ "$SLURM_ARRAY_TASK_ID" -ge "$more" ] || rounds=$((rounds + 1))
# A stop is for the command, which gets it too: it ends its VMs and cleans up. Slurm kills whatever is left when this shell ends.
trap : TERM
part=$directory/$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID
own=$part.$SLURMD_NODENAME-${SLURM_RESTART_COUNT:-0}
"$@" --on here --runs "$rounds" --out "$own" || {
	code=$?
	# Stopped (3) is not the node's fault.
	[ "$code" -eq 3 ] || : >"$directory/$SLURMD_NODENAME.failed"
	exit "$code"
}
mv "$own" "$part.part"
