#!/usr/bin/env bash
# The fused RMSNorm and the all-reduce kernels on real GPUs, against device copies, the plain form and, with two GPUs,
# NCCL: libnccl.so.2 of CUDA or of Python's nvidia-nccl package, or what BENCH_NCCL names.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${TUTTI_BUILD:-$root/build/cuda}/bench/gpu
if [ ! -x "$program" ]; then
    echo "bench: $program is not built; run ./dev bench gpu" >&2
    exit 2
fi
nccl=${BENCH_NCCL:-}
for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu \
    "$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib")' 2>/dev/null || true)"; do
    [ -n "$nccl" ] || { [ -e "$folder/libnccl.so.2" ] && nccl=$folder/libnccl.so.2; } || true
done
# Both sides without NVLink multicast.
export NCCL_NVLS_ENABLE=0
if [ -n "$nccl" ]; then
    set -- --nccl "$nccl" "$@"
fi
exec "$program" "$@"
