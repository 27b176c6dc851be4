#!/usr/bin/env bash
# The GPT of examples/gpt against PyTorch: trains both from the same weights on the same batches, one thread each, and
# compares the losses of all steps. What is written (weights, batches, losses, picture) lies in build/cpu/bench/gpt.
# Exit status 1 where the losses differ by more than the bar at any step. PyTorch: bench/gpt/README.md.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
usage="usage: bench/gpt/compare.sh [STEPS [OPTION...]]   500 steps; options of the program: --norm layer --activation gelu ..."
case ${1:-500} in
-h | --help)
    echo "$usage"
    exit 0
    ;;
*[!0-9]* | 0)
    echo "bench: $1: what is that? $usage" >&2
    exit 2
    ;;
esac
steps=${1:-500}
[ $# -eq 0 ] || shift
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${TUTTI_BUILD:-$root/build/cpu}
python=${PYTHON:-python3}
gpt=$build/examples/gpt/gpt
out=$build/bench/gpt
bar=1e-3
if [ ! -x "$gpt" ]; then
    echo "bench: $gpt is not built; run ./dev build" >&2
    exit 2
fi
if ! "$python" -c "import torch" 2>/dev/null; then
    echo "bench: $python has no PyTorch: python3 -m venv venv; venv/bin/pip install torch; then PYTHON=venv/bin/python $0" >&2
    exit 2
fi

mkdir -p "$out"
gcc -std=gnu17 -O2 -Wall -Wextra "$root/bench/gpt/draw.c" -o "$out/draw" -lm
export OMP_NUM_THREADS=1
"$python" -c "import torch; print('PyTorch', torch.__version__)"
# The sizes are said here, so that the comparison stays what it is when the program's defaults change.
"$gpt" --layers 4 --width 128 --heads 4 --context 128 --mlp-width 352 --batch 16 --steps "$steps" --validate-every 0 \
    --corpus "$root/examples/gpt/corpus.txt" --export "$out/export" "$@" </dev/null >"$out/gpt.log" 2>&1 || {
    cat "$out/gpt.log" >&2
    exit 2
}
"$python" "$root/bench/gpt/reference.py" "$out/export" "$out/pytorch.txt"
"$out/draw" "$out/export/losses.txt" "$out/pytorch.txt" "$out/losses.svg" "$bar"
