#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Runs the host tests of FlatbootPkg's libraries: no VM, no KVM. EDK2 is unpacked, and its tools built, on first use.
# Exit status 1 if a test fails or does not build, 2 if none could be tried.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -n "${EDK2_SRC:-}" ]; then
	edk2=$EDK2_SRC
else
	edk2=$("$here/build.sh" source) || exit 2
fi
# Not in /tmp, where programs may not be allowed to run.
mkdir -p "$here/../target"
work=$(mktemp -d -p "$here/../target")
trap 'rm -rf -- "$work"' EXIT
"$here/FlatbootPkg/Test/run.sh" "$edk2" "$work/out"
