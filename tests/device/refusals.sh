#!/usr/bin/env bash
# What the device headers refuse when a program is compiled, and that the text says what to use instead.
#   refusals.sh STEP COMPILER OPTIONS...      every STEPth case, by tutticc, or nvcc with its -I options
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

source=$(dirname "${BASH_SOURCE[0]}")/refusals.cu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step=$1 count=0 failed=0
shift
compiler=("$@")

# refuse CASE TARGET TEXT...: compiling CASE for TARGET fails and says every TEXT.
refuse() {
    local case=$1 target=$2 text
    shift 2
    [ $((case % step)) -eq 0 ] || return 0
    count=$((count + 1))
    if "${compiler[@]}" -std=c++17 -arch="$target" -DCASE="$case" -c "$source" -o "$work/out.o" >"$work/said" 2>&1; then
        printf 'case %s for %s was compiled\n' "$case" "$target"
        failed=1
        return
    fi
    for text in "$@"; do
        if ! grep -qF -- "$text" "$work/said"; then
            printf 'case %s for %s does not say "%s":\n' "$case" "$target" "$text"
            head -20 "$work/said"
            failed=1
        fi
    done
}

if ! "${compiler[@]}" -std=c++17 -arch=sm_90 -DCASE=0 -c "$source" -o "$work/out.o" >"$work/said" 2>&1; then
    printf 'case 0, which is right, was refused:\n'
    head -20 "$work/said"
    failed=1
fi
refuse 0 sm_80 "needs compute capability 9.0" "ncclGetLsaPointer"
refuse 1 sm_90 "does not add 8-bit integers" "ncclGetLsaPointer"
refuse 2 sm_90 "does not add 8-bit integers"
refuse 3 sm_90 "use __half2"
refuse 4 sm_90 "fp8" "__half"
refuse 5 sm_90 "4, 8 or 16 bytes"
refuse 6 sm_90 "4, 8 or 16 bytes"
refuse 7 sm_90 "float, double, __half"
refuse 8 sm_90 "does not combine this type by this operator" "use the form with window"
refuse 9 sm_90 "does not combine this type by this operator"
refuse 10 sm_90 "tuttiMultimemRed" "does not combine this type by this operator"
refuse 11 sm_90 "no 8- and 16-bit integers" "ncclLsaReduceSum" "tuttiMultimemLoadReduce"
refuse 12 sm_90 "and, or and xor are for integers"
refuse 13 sm_90 "elements are float, double, __half"
refuse 14 sm_90 "1, 2, 4, 8 or 16 bytes"
refuse 15 sm_90 "ncclCoopBcast passes at most 16 bytes"
refuse 16 sm_90 "a tile has 1, 2, 4, 8, 16 or 32 threads"
refuse 17 sm_90 "no 8- and 16-bit integers"
refuse 18 sm_90 "fp8 needs an architecture-specific target" "ncclLsaReduceSum" "tuttiMultimemLoadReduce"
refuse 19 sm_90 "a multimem source has float, double" "LSA source"
refuse 20 sm_80 "needs compute capability 9.0" "ncclLsaCopy"
refuse 21 sm_90 "1, 2, 4, 8 or 16 bytes"
refuse 22 sm_90 "pass a team or a device communicator"
refuse 23 sm_90 "pass a team or a device communicator"
refuse 24 sm_90 "pass a team or a device communicator"
[ "$failed" = 0 ] && printf 'refusals: %d cases as expected\n' "$count"
exit "$failed"
