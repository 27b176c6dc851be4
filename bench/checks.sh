#!/usr/bin/env bash
# What it costs that ranks compare their calls: instructions of an all-reduce of 8 bytes with TUTTI_CHECK_CALLS=1 and 0,
# counted by callgrind in the rank that comes last. Exit status 1 where the difference is above 40 a collective.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
case ${1:-} in
'') ;;
-h | --help)
    echo "usage: bench/checks.sh   no options; ./dev bench checks builds first"
    exit 0
    ;;
*)
    echo "bench: $1: what is that? bench/checks.sh takes no arguments" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${TUTTI_BUILD:-$root/build/cpu}
out=$build/bench
calls=100 most=40
if [ ! -e "$build/lib/libnccl.so.2" ]; then
    echo "bench: $build/lib/libnccl.so.2 is not built; run ./dev bench checks" >&2
    exit 2
fi
if ! command -v valgrind >/dev/null; then
    echo "bench: valgrind is missing; on Debian: apt-get install valgrind" >&2
    exit 2
fi
mkdir -p "$out"
gcc -std=gnu17 -O2 -g -Wall -Wextra -I"$build/include" "$root/bench/checks.c" -o "$out/checks" \
    -L"$build/lib" -Wl,-rpath,"$build/lib" -lnccl -lcudart

# count RANKS CHECK: instructions of all counted calls.
count() {
    TUTTI_CHECK_CALLS=$2 timeout 300 valgrind --tool=callgrind --callgrind-out-file="$out/checks.$1.$2" \
        --toggle-collect=counted_call "$out/checks" "$1" "$calls" 2>&1 | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

worst=0
printf 'ranks  instructions of a call, not compared  compared  difference\n'
for ranks in 2 4 8; do
    on=$(count "$ranks" 1)
    off=$(count "$ranks" 0)
    awk -v r="$ranks" -v on="$on" -v off="$off" -v n="$calls" \
        'BEGIN { printf "%5d %39.1f %9.1f %11.1f\n", r, off / n, on / n, (on - off) / n }'
    difference=$(((on - off + calls - 1) / calls))
    worst=$((difference > worst ? difference : worst))
done
if [ "$worst" -gt "$most" ]; then
    echo "missed instructions that the comparison costs a collective, at most $most: $worst"
    exit 1
fi
echo "met    instructions that the comparison costs a collective, at most $most: $worst"
