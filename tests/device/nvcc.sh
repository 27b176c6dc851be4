#!/usr/bin/env bash
# The device headers and kernels that use them also compile with NVIDIA's nvcc, for 8.0 and 9.0. Compiles only.
#   nvcc.sh INCLUDE_FOLDER
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
for target in sm_80 sm_90; do
    for program in windows barriers; do
        "$nvcc" -std=c++17 -arch="$target" -I"$include" -c "$here/$program.cu" -o "$work/$program.o"
    done
done
"$nvcc" -std=c++17 -arch=sm_90 -I"$include" -c "$here/multimem.cu" -o "$work/multimem.o"
"$here/refusals.sh" "$nvcc" -I"$include"
