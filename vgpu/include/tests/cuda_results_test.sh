#!/bin/sh
# Compares what our functions on small floats give with what CUDA's headers give, where those are installed: their host
# functions run on the CPU. Usage: cuda_results_test.sh TABLE_OF_OURS INCLUDE_FOLDER_OF_CUDA C++_COMPILER SOURCE
# SPDX-License-Identifier: Apache-2.0
set -u
ours=$1 cuda=$2 cxx=$3 source=$4
if [ ! -f "$cuda/cuda_fp8.h" ]; then
    echo "CUDA's headers are not in $cuda"
    exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
"$cxx" -std=c++17 -O1 -ffp-contract=off -w -I"$cuda" "$source" -o "$folder/table" || exit 1
"$folder/table" >"$folder/theirs" && "$ours" >"$folder/ours" || exit 1
lines=$(wc -l <"$folder/ours")
if [ "$lines" -lt 80 ] || ! diff "$folder/ours" "$folder/theirs"; then
    echo "results differ ($lines lines)"
    exit 1
fi
echo "$lines functions agree with CUDA's"
