#!/usr/bin/env bash
# What virtual GPUs cost: a kernel's barrier, the native fused RMSNorm against plain copies, the kernels against it.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
program=${TUTTI_BUILD:-$root/build/cpu}/bench/vgpu
if [ ! -x "$program" ]; then
    echo "bench: $program is not built; run ./dev bench vgpu" >&2
    exit 2
fi
exec "$program" "$@"
