#!/bin/sh
# Every function that our headers declare is in the library, so that no program fails only when it is linked.
# Usage: declared_functions_test.sh INCLUDE_FOLDER C_COMPILER LIBRARY
# SPDX-License-Identifier: Apache-2.0
set -u
include=$1 cc=$2 library=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

printf '#include <cuda.h>\n#include <cuda_runtime_api.h>\n#include <vgpu/device_runtime.h>\n#include <vgpu/native.h>\n' >"$folder/all.c"
printf '#include <vgpu/stats.h>\n#include <vgpu/trace.h>\n' >>"$folder/all.c"
"$cc" -E -P -I"$include" "$folder/all.c" | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    sed -nE 's/^ *[a-zA-Z_].*[ *]((cuda|cu|vgpu)[A-Za-z0-9_]+)\(.*\).*$/\1/p' | grep -vE '_t$|_fence$|_fence_block$' | sort -u >"$folder/declared"
nm -D --defined-only "$library" | sed -nE 's/^[0-9a-f]+ [TWi] ([A-Za-z0-9_]+)(@.*)?$/\1/p' | sort -u >"$folder/defined"

count=$(wc -l <"$folder/declared")
if [ "$count" -lt 150 ]; then
    echo "only $count declared functions were found"
    exit 1
fi
missing=$(comm -23 "$folder/declared" "$folder/defined")
if [ -n "$missing" ]; then
    echo "declared, but not in $library:"
    echo "$missing"
    exit 1
fi
echo "$count declared functions are all defined"
