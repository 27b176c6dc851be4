#!/usr/bin/env bash
# What tests of the GPT program share: sourced by them, with the folder of the build as their first argument.
# SPDX-License-Identifier: Apache-2.0
build=$(realpath "$1")
run=$build/bin/tutti-run
gpt=$build/examples/gpt/gpt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPENBLAS_NUM_THREADS=1 TUTTI_MAP=0
failed=0

# fail TEXT: counts it.
fail() {
    printf 'FAILED: %s\n' "$1"
    failed=$((failed + 1))
}

# train RANKS OPTION...: the program, quiet; what it says is in $work/out and $work/err.
train() {
    local ranks=$1
    shift
    timeout 240 "$run" -n "$ranks" "$gpt" "$@" >"$work/out" 2>"$work/err"
}

# compare FILE FILE: the largest relative difference of losses, and of which step, where both have the same steps.
compare() {
    paste "$1" "$2" | awk '
        NF != 4 || $1 != $3 { print "steps that differ"; bad = 1; exit }
        { d = $2 - $4; d = (d < 0 ? -d : d) / $2; if (d >= most) { most = d; step = $1 } }
        END { if (!bad && NR == 0) { print "no steps" } else if (!bad) { print most " " step } }'
}

# close DIFFERENCE LIMIT: whether what compare printed is a number up to the limit.
is_close() {
    awk -v d="${1%% *}" -v limit="$2" 'BEGIN { exit !(d ~ /^[0-9.e+-]+$/ && d + 0 <= limit + 0) }'
}
