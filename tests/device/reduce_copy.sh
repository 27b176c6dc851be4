#!/usr/bin/env bash
# reduce_copy.cu for every element type, twice: as virtual devices run it, and in the packs of real ones.
#   reduce_copy.sh WHAT COMPILER OPTIONS...     WHAT: all, or the types, separated by commas
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
types=float,double,__half,__nv_bfloat16,int8_t,uint8_t,int16_t,uint16_t,int32_t,uint32_t,int64_t,uint64_t
types+=,__nv_fp8_e4m3,__nv_fp8_e5m2
[ "$1" = all ] || types=$1
shift
compiler=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# try TYPE MODE OPTIONS...: compiles and runs; what it said is in $work/TYPE.MODE.said.
try() {
    local program=$work/$1.$2 type=$1 mode=$2
    shift 2
    if ! "${compiler[@]:0:1}" "$@" -DELEMENT="$type" "$here/reduce_copy.cu" "${compiler[@]:1}" -o "$program" \
        >"$program.said" 2>&1 || ! "$program" >>"$program.said" 2>&1; then
        printf '%s, %s:\n' "$type" "$mode"
        tail -20 "$program.said"
        touch "$work/failed"
    fi
    rm -f "$program"
}

count=0
for type in ${types//,/ }; do
    try "$type" runs &
    try "$type" packs -DTUTTI_REDUCE_COPY_AS_ON_GPU &
    wait
    count=$((count + 1))
done
[ ! -e "$work/failed" ] || exit 1
printf 'reduce_copy: %d types, in runs and in packs\n' "$count"
