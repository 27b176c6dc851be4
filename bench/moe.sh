#!/usr/bin/env bash
# Dispatch and combine of a mixture of experts: their rate against plain copies of the routed bytes, and three ways of
# tokens to experts under skewed routing, drawn into build/cpu/bench/moe.svg. Exit status 1 where the bar is missed.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
case ${1:-} in
'') ;;
-h | --help)
    echo "usage: bench/moe.sh   no options; ./dev bench moe builds first"
    exit 0
    ;;
*)
    echo "bench: $1: what is that? bench/moe.sh takes no arguments" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${TUTTI_BUILD:-$root/build/cpu}
out=$build/bench
if [ ! -e "$build/lib/libtutti_parallel.so" ]; then
    echo "bench: $build/lib/libtutti_parallel.so is not built; run ./dev bench moe" >&2
    exit 2
fi
mkdir -p "$out"
gcc -std=gnu17 -O2 -Wall -Wextra -I"$build/include" "$root"/bench/moe/*.c "$root/bench/copies.c" -o "$out/moe" \
    -L"$build/lib" -Wl,-rpath,"$build/lib" -ltutti_parallel -lnccl -lcudart -lm -lpthread
cd "$root"
exec "$out/moe" "${out#"$root"/}/moe.svg"
