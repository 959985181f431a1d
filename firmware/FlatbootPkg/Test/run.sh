#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Builds the package's host tests and runs them: once as they are, once watched by AddressSanitizer and
# UndefinedBehaviorSanitizer. Exit status 1 if one of them fails or does not build, 2 if they cannot be tried here.
#
#   run.sh EDK2 OUT
#
# EDK2  an EDK2 source tree, 2022.11 or later, whose BaseTools are built; nothing is written to it
# OUT   a folder for what is built; what is there from last time is used
#
# Needs gcc, make, python3 and libcmocka-dev.
set -euo pipefail

status=2
fail() {
    echo "$0: $*" >&2
    exit "$status"
}

[ $# -eq 2 ] || fail "$# arguments: must be 2, EDK2 and OUT"
edk2=$(realpath -e -- "$1")
mkdir -p -- "$2"
out=$(realpath -e -- "$2")
firmware=$(realpath -e -- "$(dirname -- "${BASH_SOURCE[0]}")/../..")

[ -x "$edk2/BaseTools/Source/C/bin/GenFw" ] || fail "$edk2: BaseTools must be built: make -C $edk2/BaseTools"
[ -e /usr/include/cmocka.h ] || fail "/usr/include/cmocka.h: must be there: apt-get install libcmocka-dev"

# UnitTestFrameworkPkg declares folders of git submodules that release tarballs are without, and every module that uses it
# fails for that. A copy of it has them, empty.
framework=$out/packages/UnitTestFrameworkPkg
rm -rf -- "$out/packages"
mkdir -p -- "$out/packages"
cp -r -- "$edk2/UnitTestFrameworkPkg" "$framework"
for folder in CmockaLib/cmocka/include/cmockery GoogleTestLib/googletest/googletest/include \
    GoogleTestLib/googletest/googlemock/include; do
    mkdir -p -- "$framework/Library/$folder"
done

mkdir -p -- "$out/Conf"
for name in build_rule tools_def target; do
    cp -- "$edk2/BaseTools/Conf/$name.template" "$out/Conf/$name.txt"
done

status=1
export WORKSPACE=$out
export PACKAGES_PATH=$out/packages:$firmware:$edk2
export EDK_TOOLS_PATH=$edk2/BaseTools
export CONF_PATH=$out/Conf
export PYTHON_COMMAND=python3
export PYTHONDONTWRITEBYTECODE=1
export PATH=$edk2/BaseTools/BinWrappers/PosixLike:$PATH
cd -- "$out"

# What a build prints is of interest only when it fails.
build_tests() {
    if ! build -q -a X64 -t GCC5 -b NOOPT -p FlatbootPkg/Test/FlatbootPkgHostTest.dsc "$@" >build.log 2>&1; then
        cat build.log >&2
        fail "the tests do not build"
    fi
}

# Each program says in TAP how many tests a suite has ("1..8") and how each went ("ok 3 - what holds"). Its exit status is no
# verdict but where a sanitizer, or a signal, ends it: then the tests that are missing have failed, and one has at least.
failed=0
run_tests() {
    local program rc good bad
    for program in "$2"/NOOPT_GCC5/X64/*UnitTestHost; do
        rc=0
        CMOCKA_MESSAGE_OUTPUT=TAP "$program" >run.log 2>&1 || rc=$?
        read -r good bad < <(awk -v rc="$rc" '
            /^1\.\.[0-9]/ { planned += substr($0, 4) }
            /^ok / { good++ }
            /^not ok / { bad++ }
            END {
                if (planned > good + bad) bad = planned - good
                if ((rc != 0 || planned == 0) && bad == 0) bad = 1
                print good + 0, bad + 0
            }' run.log)
        [ "$bad" -eq 0 ] || cat run.log >&2
        echo "${program##*/}, $1: $good passed, $bad failed"
        failed=$((failed + bad))
    done
}

build_tests
run_tests plain Build/FlatbootPkg/HostTest
build_tests -D SANITIZE=TRUE
run_tests sanitized Build/FlatbootPkg/HostTestSanitized
[ "$failed" -eq 0 ]
