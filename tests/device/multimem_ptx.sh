#!/usr/bin/env bash
# The multimem instructions that nvcc makes of every operation, type and width, compared with multimem_ptx.txt; and the
# assembler takes them. That is how the hardware's way is checked where there is no hardware.
#   multimem_ptx.sh INCLUDE_FOLDER       UPDATE_GOLDEN=1 rewrites the list
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

include=$1
here=$(dirname "${BASH_SOURCE[0]}")
nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || nvcc=/usr/local/cuda/bin/nvcc
if [ ! -x "$nvcc" ] || "$nvcc" --version | grep -q tutti; then
    printf 'skipped: NVIDIA'\''s nvcc is not installed\n'
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# instructions FILE: "kernel  instruction operands" for each; registers are written _, as their names mean nothing.
instructions() {
    awk '/\.entry/ { sub(/.*\.entry */, ""); sub(/\(.*/, ""); kernel = $0 }
        /multimem\.(ld_reduce|red|st)\./ {
            gsub(/^[ \t]+|;.*$/, "")
            gsub(/%[a-z]+[0-9]+(\+[0-9]+)?/, "_")
            print kernel, $0
        }' "$1" | LC_ALL=C sort -s -k1,1
}

list() {
    "$nvcc" -std=c++17 --extended-lambda -arch=sm_90 -I"$include" -ptx "$here/multimem_ptx.cu" -o "$work/90.ptx"
    "$nvcc" -std=c++17 --extended-lambda -gencode arch=compute_100a,code=compute_100a -I"$include" -DFP8 \
        -ptx "$here/multimem_ptx.cu" -o "$work/100a.ptx"
    "$(dirname "$nvcc")/ptxas" -arch=sm_90 "$work/90.ptx" -o "$work/90.cubin"
    "$(dirname "$nvcc")/ptxas" -arch=sm_100a "$work/100a.ptx" -o "$work/100a.cubin"
    instructions "$work/90.ptx"
    instructions "$work/100a.ptx"
}

list >"$work/list"
if [ -n "${UPDATE_GOLDEN:-}" ]; then
    cp "$work/list" "$here/multimem_ptx.txt"
elif ! diff -u "$here/multimem_ptx.txt" "$work/list"; then
    printf 'the multimem instructions are not those of multimem_ptx.txt\n'
    exit 1
fi
printf 'multimem: %s instructions as expected\n' "$(wc -l <"$work/list")"
