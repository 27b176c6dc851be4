#!/usr/bin/env bash
# The exported functions of libnccl.so.2 are exactly those of symbols.txt, and every ncclX has a pnccl one.
# usage: symbols_test.sh LIBRARY. SPDX-License-Identifier: Apache-2.0
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
names=$(nm -D --defined-only "$1" | awk '{ print $3 }' | sed 's/@.*//' | LC_ALL=C sort)
if ! diff <(LC_ALL=C sort "$here/symbols.txt") <(printf '%s\n' "$names"); then
    printf 'lines with < are missing from %s, lines with > are not in symbols.txt\n' "$1"
    exit 1
fi
# What a program links against is found under its soname.
readelf -d "$1" | grep -q 'SONAME.*libnccl\.so\.2\]'
# The driver's functions are found when they are called: on a machine without one the library can be loaded.
if readelf -d "$1" | grep 'NEEDED.*libcuda\.so\.1\]'; then
    printf '%s needs libcuda.so.1 to be loaded\n' "$1"
    exit 1
fi
