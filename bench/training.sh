#!/usr/bin/env bash
# Step times of examples/gpt on two ranks against one rank with one thread, on the same global batch, and against the same
# without communication (training/silent.c). In turns, medians of all rounds. Exit status 1 where a bar is missed.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
rounds=${ROUNDS:-7} steps=${STEPS:-12}
case ${1:-} in
'') ;;
-h | --help)
    echo "usage: bench/training.sh   ROUNDS=$rounds STEPS=$steps before it: how often, how long; ./dev bench training builds first"
    exit 0
    ;;
*)
    echo "bench: $1: what is that? bench/training.sh takes no arguments" >&2
    exit 2
    ;;
esac
root=$(cd "$(dirname "$0")/.." && pwd)
build=${TUTTI_BUILD:-$root/build/cpu}
gpt=$build/examples/gpt/gpt run=$build/bin/tutti-run
if [ ! -x "$gpt" ] || [ ! -x "$run" ]; then
    echo "bench: $gpt or $run is not built; run ./dev bench training" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -std=gnu17 -O2 -Wall -Wextra -shared -fPIC -I"$build/include" "$root/bench/training/silent.c" -o "$work/silent.so" -ldl
export OPENBLAS_NUM_THREADS=1 TUTTI_MAP=0
model=(--layers 4 --width 128 --heads 4 --context 128 --batch 16 --steps "$steps" --validate-every 0
    --corpus "$root/examples/gpt/corpus.txt")

# measure NAME RANKS OPTION...: one run; its milliseconds a step go to $work/NAME.
measure() {
    local name=$1 ranks=$2
    shift 2
    "$run" -n "$ranks" "$gpt" "${model[@]}" "$@" >"$work/out" 2>"$work/err" </dev/null ||
        { cat "$work/out" "$work/err" >&2 && exit 2; }
    sed -nE 's/^.*: ([0-9.]+) ms a step.*$/\1/p' "$work/out" >>"$work/$name"
}
silent() { LD_PRELOAD=$work/silent.so measure "$@"; }
median() { sort -g "$work/$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

for ((i = 0; i < rounds; i++)); do
    measure one 1
    measure dp2 2 --dp 2
    silent dp2-silent 2 --dp 2
    measure tp2 2 --tp 2
    measure tp2-sp 2 --tp 2 --sp
    silent tp2-sp-silent 2 --tp 2 --sp
done

printf 'GPT of 4 layers, width 128, 16 sequences of 128 tokens, float; medians of %d runs of %d steps\n' "$rounds" "$steps"
missed=0
# judge TEXT VALUE BAR WHAT
judge() {
    local verdict=reached
    awk -v v="$2" -v b="$3" 'BEGIN { exit !(v <= b) }' || { verdict=MISSED && missed=1; }
    printf '%-44s %7.3f  bar %.2f: %s\n' "$1" "$2" "$3" "$verdict"
}
ratio() { awk -v a="$(median "$1")" -v b="$(median "$2")" 'BEGIN { printf "%.4f", a / b }'; }
for name in one dp2 dp2-silent tp2 tp2-sp tp2-sp-silent; do
    printf '%-16s %8.1f ms a step\n' "$name" "$(median $name)"
done
judge 'dp2 of one rank' "$(ratio dp2 one)" 0.60
judge 'tp2 of one rank' "$(ratio tp2 one)" 0.75
judge 'dp2: share of communication' "$(awk -v r="$(ratio dp2-silent dp2)" 'BEGIN { print 1 - r }')" 0.05
judge 'tp2 with sp: share of communication' "$(awk -v r="$(ratio tp2-sp-silent tp2-sp)" 'BEGIN { print 1 - r }')" 0.15
exit $missed
