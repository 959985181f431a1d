#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# "Encodes" a section for StoredSectionLib: copies it. Called by EDK2 as a compressor is: store.sh -e -o OUT IN.
set -euo pipefail

if [ $# -ne 4 ] || [ "$1 $2" != '-e -o' ]; then
	echo "store.sh: '$*': must be -e -o OUT IN" >&2
	exit 1
fi
cp -- "$4" "$3"
