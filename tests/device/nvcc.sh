#!/usr/bin/env bash
# The device headers and kernels that use them also compile with NVIDIA's nvcc, for 8.0 and 9.0. Compiles only.
#   nvcc.sh INCLUDE_FOLDER [full]     full: all programs, and what must be refused. Else what the build for real GPUs,
#                                     which `./dev test` makes for 9.0, does not have.
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
"$nvcc" -std=c++17 -arch=sm_80 -I"$include" -c "$here/barriers.cu" -o "$work/barriers.o"
if [ "${2:-}" = full ]; then
    both=(-gencode "arch=compute_80,code=sm_80" -gencode "arch=compute_90,code=sm_90")
    "$nvcc" -std=c++17 "${both[@]}" -I"$include" -c "$here/barriers.cu" -o "$work/barriers.o"
    "$nvcc" -std=c++17 "${both[@]}" -I"$include" -c "$here/windows.cu" -o "$work/windows.o"
    for program in functions coops low_latency operators; do
        "$nvcc" -std=c++17 "${both[@]}" -I"$include" -c "$here/$program.cu" -o "$work/$program.o"
    done
    for program in multimem team_views three_windows faults; do
        "$nvcc" -std=c++17 -arch=sm_90 -I"$include" -c "$here/$program.cu" -o "$work/$program.o"
    done
    "$nvcc" -std=c++17 --extended-lambda -arch=sm_90 -I"$include" -c "$here/reduce_copy_uses.cu" -o "$work/uses.o"
    # All reductions and copies; on this target a multimem source can have fp8.
    "$nvcc" -std=c++17 --extended-lambda -gencode "arch=compute_100a,code=sm_100a" -I"$include" \
        -DELEMENT=__nv_fp8_e4m3 -DFP8_MULTIMEM -c "$here/reduce_copy.cu" -o "$work/fp8.o"
    "$here/refusals.sh" 1 "$nvcc" -I"$include"
fi
